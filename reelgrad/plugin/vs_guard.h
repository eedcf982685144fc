// What every callback of the plugin shares: ownership of VapourSynth's objects, and errors as VapourSynth wants them.
#pragma once
#include <VapourSynth4.h>

#include <exception>
#include <memory>
#include <string>

namespace reelgrad::vs {

struct FreeNode {
  const VSAPI* api;
  void operator()(VSNode* node) const { api->freeNode(node); }
};
using NodeHandle = std::unique_ptr<VSNode, FreeNode>;

struct FreeFrame {
  const VSAPI* api;
  void operator()(const VSFrame* frame) const { api->freeFrame(frame); }
};
using FrameHandle = std::unique_ptr<const VSFrame, FreeFrame>;

struct FreeMap {
  const VSAPI* api;
  void operator()(VSMap* map) const { api->freeMap(map); }
};
using MapHandle = std::unique_ptr<VSMap, FreeMap>;

// Runs the body of a callback; an exception becomes `report("Function: what is wrong")`.
template <class Report, class Work>
void guarded(const char* function, Report&& report, Work&& work) noexcept {
  try {
    work();
  } catch (const std::exception& error) {
    report((std::string(function) + ": " + error.what()).c_str());
  } catch (...) {
    report((std::string(function) + ": unknown error").c_str());
  }
}

}  // namespace reelgrad::vs
