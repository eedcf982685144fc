#include "reelgrad/doctor/probes/library_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reelgrad/base/process.h"
#include "reelgrad/doctor/testing/fake_root.h"

namespace reelgrad {
namespace {

using test::FakeRoot;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// "name path version from", in order.
std::vector<std::string> libraries_of(const FakeRoot& root, const Environment& environment = {}) {
  std::vector<std::string> lines;
  for (const LibraryFacts& library : probe_libraries(root.files(), environment))
    lines.push_back(library.name + " " + library.path + " " + library.version + " " + library.from +
                    (library.stub ? " stub" : ""));
  return lines;
}

TEST(Libraries, TheLinkersOrderIsKept) {
  const FakeRoot root({{"/opt/old/libcuda.so.470.82", ""},
                       {"/usr/lib64/libcuda.so.580.65.06", ""},
                       {"/usr/lib64/libnvidia-ml.so.1", ""},
                       {"/opt/driver/libcuda.so.575.1", ""}});
  root.link("/opt/old/libcuda.so.1", "libcuda.so.470.82");
  root.link("/opt/driver/libcuda.so.1", "libcuda.so.575.1");
  root.link("/usr/lib64/libcuda.so.1", "libcuda.so.580.65.06");
  root.write_linker_cache({{"libcuda.so.1", "/opt/driver32/libcuda.so.1", 0x0003},
                           {"libcuda.so.1", "/opt/driver/libcuda.so.1"},
                           {"libcuda.so.1", "/gone/libcuda.so.1"},
                           {"libz.so.1", "/usr/lib64/libz.so.1"}});
  EXPECT_THAT(libraries_of(root, {{"LD_LIBRARY_PATH", "/missing:/opt/old"}}),
              ElementsAre("libcuda.so.1 /opt/old/libcuda.so.470.82 470.82 LD_LIBRARY_PATH",
                          "libcuda.so.1 /opt/driver/libcuda.so.575.1 575.1 ldconfig",
                          "libcuda.so.1 /usr/lib64/libcuda.so.580.65.06 580.65.06 default",
                          "libnvidia-ml.so.1 /usr/lib64/libnvidia-ml.so.1  default"));
  EXPECT_EQ(*library_on_path(root.files(), {}, "libcuda.so.1"), "/opt/driver/libcuda.so.575.1");
  EXPECT_EQ(library_on_path(root.files(), {}, "libnothing.so"), std::nullopt);
}

TEST(Libraries, StubsAndWslAreToldApart) {
  const FakeRoot root({{"/usr/local/cuda-13.0/lib64/stubs/libcuda.so", ""}, {"/usr/lib/wsl/lib/libcuda.so.1", ""}});
  root.link("/usr/local/cuda", "cuda-13.0");
  EXPECT_THAT(libraries_of(root, {{"LD_LIBRARY_PATH", "/usr/local/cuda/lib64/stubs;"}}),
              ElementsAre("libcuda.so /usr/local/cuda-13.0/lib64/stubs/libcuda.so  LD_LIBRARY_PATH stub",
                          "libcuda.so.1 /usr/lib/wsl/lib/libcuda.so.1  wsl"));
  root.write_linker_cache({{"libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1"}});
  EXPECT_THAT(libraries_of(root), ElementsAre("libcuda.so.1 /usr/lib/wsl/lib/libcuda.so.1  ldconfig"));
}

TEST(Libraries, EachRuntimeIsListedOnce) {
  const FakeRoot root(
      {{"/cuda/libcudart.so.12.4.127", ""}, {"/cuda/libcudart.so.11.0", ""}, {"/cuda/libcudnn.so.9", ""}});
  root.link("/cuda/libcudart.so.12", "libcudart.so.12.4.127");
  root.link("/cuda/libcudart.so", "libcudart.so.12");
  EXPECT_THAT(libraries_of(root, {{"LD_LIBRARY_PATH", "/cuda"}}),
              ElementsAre("libcudart.so.11.0 /cuda/libcudart.so.11.0 11.0 LD_LIBRARY_PATH",
                          "libcudart.so.12 /cuda/libcudart.so.12.4.127 12.4.127 LD_LIBRARY_PATH",
                          "libcudnn.so.9 /cuda/libcudnn.so.9  LD_LIBRARY_PATH"));
}

TEST(Libraries, LibrariesOf32BitsAreNoUse) {
  const FakeRoot root;
  root.write("/usr/lib/libcuda.so.1", std::string("\x7f"
                                                  "ELF\x01",
                                                  5));
  EXPECT_THAT(libraries_of(root), IsEmpty());
  root.write("/usr/lib/libcuda.so.1", std::string("\x7f"
                                                  "ELF\x02",
                                                  5));
  EXPECT_THAT(libraries_of(root), ElementsAre("libcuda.so.1 /usr/lib/libcuda.so.1  default"));
}

TEST(Libraries, WithoutACacheTheConfigurationIsRead) {
  const FakeRoot root({{"/etc/ld.so.conf", "# folders\ninclude ld.so.conf.d/*.conf\ninclude /etc/ld.so.conf\n"},
                       {"/etc/ld.so.conf.d/cuda.conf", "  /opt/cuda/lib # ours\n"},
                       {"/etc/ld.so.conf.d/cuda.conf.old", "/opt/old/lib\n"},
                       {"/opt/cuda/lib/libtorch.so", ""},
                       {"/opt/old/lib/libtorch.so", ""}});
  EXPECT_THAT(libraries_of(root), ElementsAre("libtorch.so /opt/cuda/lib/libtorch.so  ldconfig"));
}

TEST(Libraries, ABrokenCacheIsNone) {
  const FakeRoot root({{"/lib64/libcuda.so.1", ""}});
  root.write_linker_cache({{"libcuda.so.1", "/opt/libcuda.so.1"}});
  const std::string cache = root.files().text("/etc/ld.so.cache");
  for (std::size_t kept = 0; kept < cache.size(); ++kept)
    EXPECT_LE(parse_linker_cache(cache.substr(0, kept)).size(), 1u) << kept;
  EXPECT_THAT(parse_linker_cache("glibc-ld.so.cache1.1\xff\xff\xff\xff"), IsEmpty());
  // After the older format, as before glibc 2.32.
  ASSERT_EQ(parse_linker_cache("ld.so-1.7.0 and its entries" + cache).size(), 1u);
  EXPECT_EQ(parse_linker_cache("ld.so-1.7.0 and its entries" + cache)[0].path, "/opt/libcuda.so.1");
}

TEST(Libraries, ThisMachinesCacheReadsAsLdconfigSays) {
  const std::string ldconfig = find_program("ldconfig", "/sbin:/usr/sbin");
  const auto cached = parse_linker_cache(RootFiles("/").text("/etc/ld.so.cache", 16 << 20));
  if (ldconfig.empty() || cached.empty()) GTEST_SKIP() << "no ldconfig or no cache";
  const std::string printed = run_process({ldconfig, "-p"}, std::chrono::seconds(10)).out;
  for (const CachedLibrary& library : cached) {
    EXPECT_NE(printed.find("\t" + library.name + " ("), std::string::npos) << library.name;
    EXPECT_NE(printed.find("=> " + library.path.string() + "\n"), std::string::npos) << library.path;
  }
}

}  // namespace
}  // namespace reelgrad
