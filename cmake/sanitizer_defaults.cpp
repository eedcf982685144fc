// In every program of a sanitized build: what the sanitizers must know about the libraries that they do not see into.

extern "C" __attribute__((visibility("default"), used)) const char* __asan_default_options() {
  return "detect_leaks=0"                // Python and libtorch keep memory until the end, and more
         ":detect_container_overflow=0"  // a std::vector filled inside libtorch has no annotations
         ":protect_shadow_gap=0"         // CUDA maps memory there
         ":alloc_dealloc_mismatch=0"     // malloc inside a library, delete in an inline function of its header
         ":allocator_may_return_null=1"  // a test asks for more memory than there is
         ":detect_odr_violation=0";      // the engine and the program each hold base/
}

// How these order their threads' work, by atomic counters most of all, ThreadSanitizer does not see. It names them only
// where they themselves read or write: races of ours are still told.
extern "C" __attribute__((visibility("default"), used)) const char* __tsan_default_suppressions() {
  return "race:libvapoursynth.so\n"
         "race:libvsscript.so\n"
         "race:libpython\n"
         "race:libbestsource.so\n"
         "race:libvs_imageseqs\n";
}
