// What a decoy library holds.
extern "C" int reelgrad_decoy() {
  return 1;
}
