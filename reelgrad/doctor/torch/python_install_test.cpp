#include "reelgrad/doctor/torch/python_install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "reelgrad/base/testing/program_output.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/doctor/testing/elf_builder.h"
#include "reelgrad/doctor/torch/torch_install.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Environments and interpreters made of files. An interpreter is a script of the shell, so that a test decides what it
// says when it is asked.
class Pythons : public ::testing::Test {
 protected:
  Pythons() {
    ::setenv("HOME", (folder_ / "home").c_str(), 1);
    for (const char* name : {"PYTHONPATH", "PYTHONUSERBASE", "PYTHONNOUSERSITE"}) ::unsetenv(name);
  }
  ~Pythons() override {
    if (home_.empty()) {
      ::unsetenv("HOME");
    } else {
      ::setenv("HOME", home_.c_str(), 1);
    }
    ::unsetenv("PYTHONPATH");
  }

  fs::path write(const std::string& name, const std::string& text) const { return folder_.write(name, text); }

  fs::path write_program(const std::string& name, const std::string& script) const {
    const fs::path file = write(name, "#!/bin/sh\n" + script);
    fs::permissions(file, fs::perms::owner_all);
    return file;
  }

  // An interpreter that was not asked: asking it is a fault.
  fs::path write_silent(const std::string& name) const { return write_program(name, "echo asked >&2\nexit 9\n"); }

  // One that answers as a Python of the system does.
  fs::path write_system(const std::string& name, const std::string& packages) const {
    return write_program(
        name, "echo 3.11.2\necho " + (folder_ / name).string() + "\necho " + (folder_ / packages).string() + "\n");
  }

  fs::path write_torch(const std::string& packages, const std::string& version,
                       const std::string& cuda = "'13.0'") const {
    write(packages + "/torch/__init__.py", "");
    write(packages + "/torch/version.py", "__version__ = '" + version + "'\ncuda: Optional[str] = " + cuda + "\n");
    write(packages + "/torch/lib/libtorch.so", test::elf_file({}));
    return folder_ / packages / "torch";
  }

  fs::path write_environment(const std::string& name, const std::string& config) const {
    write(name + "/pyvenv.cfg", config);
    fs::create_directories(folder_ / name / "lib/python3.11/site-packages");
    return write_silent(name + "/bin/python");
  }

  const std::string home_ = std::getenv("HOME") ? std::getenv("HOME") : "";
  test::TemporaryFolder folder_;
};

constexpr const char* kVenv = "home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.11.4\n";

TEST_F(Pythons, AnEnvironmentIsReadFromItsFilesAlone) {
  const fs::path python = write_environment("venv", kVenv);
  const fs::path torch = write_torch("venv/lib/python3.11/site-packages", "2.12.0.dev20251201+cu130");
  const PythonFacts facts = read_python(python);
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(facts.path, python.string());
  EXPECT_EQ(facts.version, "3.11.4");
  EXPECT_EQ(facts.torch.dir, torch.string());
  EXPECT_EQ(facts.torch.version, "2.12.0.dev20251201+cu130");
  EXPECT_EQ(facts.torch.cuda, "13.0");
  EXPECT_EQ(facts.imported, Outcome::not_run);
}

TEST_F(Pythons, AnEnvironmentsFolderStandsForItsPython) {
  const fs::path python = write_environment("venv", kVenv);
  write_torch("venv/lib/python3.11/site-packages", "2.11.0+cpu", "None");
  const PythonFacts facts = read_python(folder_ / "venv");
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(facts.path, python.string());
  EXPECT_EQ(facts.torch.version, "2.11.0+cpu");
  EXPECT_EQ(facts.torch.cuda, "");
}

TEST_F(Pythons, OtherMakersOfEnvironmentsWriteOtherKeys) {
  const fs::path python = write_environment(
      "venv", "home = /usr/bin\nimplementation = CPython\nversion_info = 3.11.9.final.0\nvirtualenv = 20.26.2\n");
  write_torch("venv/lib/python3.11/site-packages", "2.3.0a0+gitdeadbee");
  EXPECT_EQ(read_python(python).version, "3.11.9");
  EXPECT_EQ(read_python(python).torch.version, "2.3.0a0+gitdeadbee");
}

TEST_F(Pythons, AnEnvironmentThatDoesNotSayItsVersionHasThatOfItsFolder) {
  const fs::path python = write_environment("venv", "home = /usr/bin\n");
  const fs::path torch = write_torch("venv/lib/python3.11/site-packages", "2.11.0");
  EXPECT_EQ(read_python(python).version, "3.11");
  EXPECT_EQ(read_python(python).torch.dir, torch.string());
}

TEST_F(Pythons, AnEnvironmentOfAnOlderPythonIsEmptyForTheNewOne) {
  write_environment("venv", kVenv);
  write_torch("venv/lib/python3.11/site-packages", "2.11.0");
  fs::remove(folder_ / "venv/bin/python");
  fs::create_symlink(write_silent("usr/bin/python3.12"), folder_ / "venv/bin/python");
  const PythonFacts facts = read_python(folder_ / "venv/bin/python");
  EXPECT_EQ(facts.torch.dir, "");
  EXPECT_EQ(facts.error, (folder_ / "venv").string() +
                             " has no packages of Python 3.12, only of 3.11, which it was made "
                             "for: make the environment again");
}

TEST_F(Pythons, TheSystemsPackagesCountWhereTheEnvironmentSaysSo) {
  write_environment("venv", "home = /usr/bin\ninclude-system-site-packages = true\nversion = 3.11.4\n");
  fs::remove(folder_ / "venv/bin/python");
  fs::create_symlink(write_system("usr/bin/python3.11", "usr/lib/python3/dist-packages"), folder_ / "venv/bin/python");
  const fs::path torch = write_torch("usr/lib/python3/dist-packages", "2.6.0+cu124", "'12.4'");
  EXPECT_EQ(read_python(folder_ / "venv/bin/python").error, "");
  EXPECT_EQ(read_python(folder_ / "venv/bin/python").torch.dir, torch.string());
}

TEST_F(Pythons, ACondaEnvironmentIsKnownByItsRecords) {
  write("conda/conda-meta/python-3.11.9-h955ad1f_0.json", "{}");
  write("conda/conda-meta/python_abi-3.11-2_cp311.json", "{}");
  const fs::path torch = write_torch("conda/lib/python3.11/site-packages", "2.5.1", "'12.1'");
  write_silent("conda/bin/python3.11");
  fs::create_symlink("python3.11", folder_ / "conda/bin/python");
  const PythonFacts facts = read_python(folder_ / "conda/bin/python");
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(facts.version, "3.11.9");
  EXPECT_EQ(facts.torch.dir, torch.string());
}

TEST_F(Pythons, TheUsersOwnPackagesComeBeforeThoseOfTheInterpreter) {
  write("conda/conda-meta/python-3.11.9-h955ad1f_0.json", "{}");
  write_torch("conda/lib/python3.11/site-packages", "2.5.1", "'12.1'");
  const fs::path python = write_silent("conda/bin/python");
  const fs::path own = write_torch("home/.local/lib/python3.11/site-packages", "1.13.0+cpu", "None");
  EXPECT_EQ(read_python(python).torch.dir, own.string());
  // An environment does not see them.
  const fs::path inside = write_environment("venv", kVenv);
  const fs::path torch = write_torch("venv/lib/python3.11/site-packages", "2.11.0");
  EXPECT_EQ(read_python(inside).torch.dir, torch.string());
  // But PYTHONPATH reaches everywhere.
  const fs::path first = write_torch("path", "2.0.0");
  ::setenv("PYTHONPATH", ("/nonexistent::" + (folder_ / "path").string()).c_str(), 1);
  EXPECT_EQ(read_python(inside).torch.dir, first.string());
  EXPECT_EQ(read_python(python).torch.dir, first.string());
}

TEST_F(Pythons, AShimLeadsToTheRealOne) {
  write_environment("venv", kVenv);
  const fs::path torch = write_torch("venv/lib/python3.11/site-packages", "2.11.0");
  const fs::path shim =
      write_program("shims/python", "echo 3.11.4\necho " + (folder_ / "venv/bin/python").string() + "\necho /base\n");
  const PythonFacts facts = read_python(shim);
  EXPECT_EQ(facts.error, "");
  EXPECT_EQ(facts.path, shim.string());
  EXPECT_EQ(facts.torch.dir, torch.string());
}

TEST_F(Pythons, EditableInstallsAreFollowed) {
  const fs::path python = write_environment("venv", kVenv);
  const std::string packages = "venv/lib/python3.11/site-packages/";
  const fs::path torch = write_torch("src/pytorch", "2.12.0a0+git0123456");
  write(packages + "distutils-precedence.pth", "import os; var = 'x'\n");
  write(packages + "__editable__.torch-2.12.0a0.pth", "# a comment\n" + (folder_ / "src/pytorch").string() + "\n");
  EXPECT_EQ(read_python(python).torch.dir, torch.string());
  fs::remove(folder_ / (packages + "__editable__.torch-2.12.0a0.pth"));
  EXPECT_EQ(read_python(python).torch.dir, "");
  write(packages + "__editable___torch_2_12_0a0_git0123456_finder.py",
        "from x import y\nMAPPING: dict[str, str] = {'functorch': '/f', 'torch': '" + torch.string() + "'}\n");
  EXPECT_EQ(read_python(python).error, "");
  EXPECT_EQ(read_python(python).torch.dir, torch.string());
}

TEST_F(Pythons, WhatIsMissingIsSaidInWords) {
  EXPECT_EQ(read_python(folder_ / "none").error, "there is no file " + (folder_ / "none").string());
  EXPECT_EQ(read_python("no-such-python-anywhere").error, "there is no program no-such-python-anywhere on PATH");
  EXPECT_EQ(read_python(folder_.path()).error, folder_.path().string() + " is a folder without bin/python");
  EXPECT_THAT(read_python(write("text", "hello")).error, EndsWith("/text is not executable"));
  EXPECT_THAT(read_python("/dev/null").error, EndsWith("is no program"));
  fs::create_directories(folder_ / "old/bin");
  fs::create_symlink("/nonexistent/python3.9", folder_ / "old/bin/python");
  EXPECT_THAT(read_python(folder_ / "old/bin/python").error,
              HasSubstr("is a link to /nonexistent/python3.9, which is not there"));
  EXPECT_THAT(read_python(folder_ / "old").error, HasSubstr("which is not there"));
}

TEST_F(Pythons, AnotherProgramIsNoPython) {
  EXPECT_THAT(read_python(write_program("ls", "echo 'bad option -I' >&2\nexit 2\n")).error,
              EndsWith("/ls does not answer as a Python 3 does: bad option -I"));
  EXPECT_THAT(read_python(write_program("yes", "echo yes\necho yes\n")).error, HasSubstr("does not answer as"));
}

TEST_F(Pythons, WithoutTorchTheFoldersThatWereSearchedAreNamed) {
  const fs::path python = write_environment("venv", kVenv);
  const std::string packages = (folder_ / "venv/lib/python3.11/site-packages").string();
  EXPECT_EQ(read_python(python).error, "there is no torch in " + packages);
  EXPECT_EQ(read_python(python).version, "3.11.4");
  write("venv/lib/python3.11/site-packages/torch/__init__.py", "");
  write("venv/lib/python3.11/site-packages/torch/version.py", "__version__ = '2.9.0'\n");
  EXPECT_THAT(read_python(python).error, StartsWith(packages + "/torch has no lib/libtorch.so, though it is of version "
                                                               "2.9.0: the installation is damaged"));
}

class PythonImports : public Pythons {
 protected:
  PythonFacts ask(const std::string& script, std::chrono::milliseconds limit = std::chrono::seconds(30)) const {
    PythonFacts facts{.path = write_program("python", script).string()};
    ask_python(facts, limit);
    return facts;
  }

  // The real interpreter with a torch of a few lines.
  PythonFacts ask_with_torch(const std::string& source) const {
    write("fake/torch/__init__.py", source);
    return ask("PYTHONPATH=" + (folder_ / "fake").string() + " exec " REELGRAD_TEST_PYTHON " \"$@\"\n");
  }
};

constexpr const char* kFakeCuda =
    "import os\n"
    "class cuda:\n"
    "  def is_available(): return available()\n"
    "  def device_count(): return 2\n"
    "  def get_device_name(index): return name()\n"
    "def available(): return True\n"
    "def name(): return 'a card'\n";

TEST_F(PythonImports, TheUsualQuestionsAreAnswered) {
  const PythonFacts facts = ask_with_torch("print('a greeting')\n" + std::string(kFakeCuda));
  EXPECT_EQ(facts.import_error, "");
  EXPECT_EQ(facts.imported, Outcome::ok);
  EXPECT_EQ(facts.is_available, true);
  EXPECT_EQ(facts.device_count, 2);
}

TEST_F(PythonImports, TheReasonForNotAvailableIsKept) {
  const PythonFacts facts =
      ask_with_torch(std::string(kFakeCuda) +
                     "def available(): return False\n"
                     "def name(): raise AssertionError('Torch not compiled with CUDA enabled')\n");
  EXPECT_EQ(facts.imported, Outcome::ok);
  EXPECT_EQ(facts.is_available, false);
  EXPECT_EQ(facts.import_error, "AssertionError: Torch not compiled with CUDA enabled");
}

TEST_F(PythonImports, AFailedImportIsTold) {
  const PythonFacts facts = ask_with_torch("raise ImportError('libcudnn.so.9: cannot open shared object file')\n");
  EXPECT_EQ(facts.imported, Outcome::failed);
  EXPECT_EQ(facts.is_available, std::nullopt);
  EXPECT_EQ(facts.import_error, "ImportError: libcudnn.so.9: cannot open shared object file");
}

TEST_F(PythonImports, ACrashKeepsWhatWasAnsweredBefore) {
  const PythonFacts facts = ask_with_torch(std::string(kFakeCuda) + "def name(): os.kill(os.getpid(), 11)\n");
  EXPECT_EQ(facts.imported, Outcome::crashed);
  EXPECT_EQ(facts.is_available, true);
  EXPECT_EQ(facts.device_count, 2);
  EXPECT_EQ(facts.import_error, "killed by signal 11 (SIGSEGV) at torch.cuda.get_device_name(0)");
}

TEST_F(PythonImports, OneThatHangsIsEnded) {
  const PythonFacts facts =
      ask("echo 'reelgrad: {\"step\": \"import torch\"}'\nsleep 100\n", std::chrono::milliseconds(300));
  EXPECT_EQ(facts.imported, Outcome::timed_out);
  EXPECT_EQ(facts.import_error, "no answer within 0.3 s at import torch");
}

TEST_F(PythonImports, NonsenseIsNoAnswer) {
  const PythonFacts facts =
      ask("echo 'reelgrad: {\"is_available\": 7, \"device_count\": \"x\", \"step\": []}'\n"
          "echo 'reelgrad: not json'\necho oh dear >&2\nexit 3\n");
  EXPECT_EQ(facts.imported, Outcome::failed);
  EXPECT_EQ(facts.import_error, "exit status 3: oh dear");
}

TEST_F(PythonImports, WithoutAPythonNothingIsAsked) {
  PythonFacts facts;
  ask_python(facts, std::chrono::seconds(1));
  EXPECT_EQ(facts.imported, Outcome::not_run);
  facts.path = "/nonexistent/python";
  ask_python(facts, std::chrono::seconds(1));
  EXPECT_EQ(facts.imported, Outcome::failed);
  EXPECT_THAT(facts.import_error, HasSubstr("/nonexistent/python"));
}

// The interpreter that this was built with, by its own words.
TEST(InstalledPython, SaysWhatItsFilesSay) {
  const std::string said = test::output_of(
      {REELGRAD_TEST_PYTHON, "-c",
       "import sys, importlib.util as u\nsys.path[:] = [p for p in sys.path if p]\nspec = u.find_spec('torch')\n"
       "print('.'.join(map(str, sys.version_info[:3])))\nprint(spec.submodule_search_locations[0] if spec else '')\n"});
  const std::vector<std::string> lines = test::lines_of(said);
  ASSERT_EQ(lines.size(), 2u);
  const PythonFacts facts = read_python(REELGRAD_TEST_PYTHON);
  EXPECT_EQ(facts.version, lines[0]);
  EXPECT_EQ(facts.torch.dir, lines[1]);
  EXPECT_EQ(facts.error.empty(), !lines[1].empty()) << facts.error;
}

}  // namespace
}  // namespace reelgrad
