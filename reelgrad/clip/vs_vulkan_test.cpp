#include "reelgrad/clip/vs_vulkan.h"

#include <sstream>

#include "reelgrad/clip/clip_test_util.h"
#include "reelgrad/clip/vs_library.h"

namespace reelgrad {
namespace {

using test::read_bytes;

std::string without_comments(const std::string& text) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const bool block = text.compare(at, 2, "/*") == 0, line = text.compare(at, 2, "//") == 0;
    if (!block && !line) {
      result += text[at++];
      continue;
    }
    const std::size_t end = text.find(block ? "*/" : "\n", at + 2);
    at = end == std::string::npos ? text.size() : end + (block ? 2 : 0);
  }
  return result;
}

// The body of a struct, without comments and with single spaces.
std::string struct_body(const std::string& header, const std::string& name) {
  const std::string text = without_comments(header), start = "struct " + name + " {";
  const std::size_t begin = text.find(start);
  if (begin == std::string::npos) return "no " + start;
  std::istringstream words(text.substr(begin + start.size(), text.find('}', begin) - begin - start.size()));
  std::string body;
  for (std::string word; words >> word;) body += word + ' ';
  return body;
}

// In the order of the table.
std::vector<std::string> function_names(const std::string& body) {
  const std::string start = "(VS_CC *";
  std::vector<std::string> names;
  for (std::size_t at = body.find(start); at != std::string::npos; at = body.find(start, at + 1)) {
    names.push_back(body.substr(at + start.size(), body.find(')', at) - at - start.size()));
  }
  return names;
}

TEST(VsVulkan, IsTheInstalledHeaders) {
  const auto installed = vapoursynth().library.parent_path() / "include/VSVulkan4.h";
  const auto source = std::filesystem::path(REELGRAD_SOURCE_DIR) / "reelgrad/clip/vs_vulkan.h";
  if (!std::filesystem::exists(installed)) GTEST_SKIP() << "VapourSynth was installed without " << installed;
  if (!std::filesystem::exists(source)) GTEST_SKIP() << "this machine has no sources: no " << source;
  const std::string theirs = read_bytes(installed), ours = read_bytes(source);
  for (const char* name : {"VSVulkanCoreHandles", "VSVulkanPlaneInfo", "VSVulkanExportedMemory",
                           "VSVulkanExportedSemaphore", "VSVulkanCoreInfo", "VSVulkanDeviceListEntry"}) {
    EXPECT_EQ(struct_body(ours, name), struct_body(theirs, name));
  }
  const std::vector<std::string> functions = function_names(struct_body(ours, "Api"));
  EXPECT_EQ(functions.size(), sizeof(vulkan::Api) / sizeof(void*));
  EXPECT_EQ(functions, function_names(struct_body(theirs, "VSVULKANAPI")));
}

}  // namespace
}  // namespace reelgrad
