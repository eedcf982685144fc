#include "reelgrad/doctor/torch/torch_install.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <nlohmann/json.hpp>

#include "reelgrad/base/process.h"
#include "reelgrad/base/testing/temporary_folder.h"
#include "reelgrad/doctor/testing/elf_builder.h"

namespace reelgrad {
namespace {

namespace fs = std::filesystem;
using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class TorchInstalls : public ::testing::Test {
 protected:
  ~TorchInstalls() override { ::unsetenv("REELGRAD_TORCH"); }

  void add_library() const { write("lib/libtorch.so", ""); }
  void write(const char* name, const char* text) const { temporary_.write(name, text); }

  test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

TEST_F(TorchInstalls, ReadsAWheelsVersionFile) {
  add_library();
  write("version.py",
        "from typing import Optional\n__all__ = ['__version__', 'cuda']\n__version__ = '2.11.0+cu130'\n"
        "debug = False\ncuda: Optional[str] = '13.0'\nhip: Optional[str] = None\n");
  const auto torch = read_torch(folder_);
  ASSERT_TRUE(torch);
  EXPECT_EQ(torch->version, "2.11.0+cu130");
  EXPECT_EQ(torch->cuda, "13.0");
  EXPECT_EQ(torch->dir, folder_);
  EXPECT_EQ(torch_version(folder_), "2.11.0+cu130");
}

TEST_F(TorchInstalls, ACpuBuildHasNoCuda) {
  add_library();
  write("version.py", "__version__ = \"2.11.0+cpu\"\ncuda: Optional[str] = None\nhip: Optional[str] = '6'\n");
  EXPECT_EQ(read_torch(folder_)->version, "2.11.0+cpu");
  EXPECT_EQ(read_torch(folder_)->cuda, "");
}

TEST_F(TorchInstalls, ReadsAnArchivesBuildVersion) {
  add_library();
  write("build-version", "2.10.0+cu128\n");
  EXPECT_EQ(read_torch(folder_)->version, "2.10.0+cu128");
  EXPECT_EQ(read_torch(folder_)->cuda, "12.8");
}

TEST_F(TorchInstalls, WithoutALibraryItIsNone) {
  write("version.py", "__version__ = '2.11.0'\n");
  EXPECT_FALSE(read_torch(folder_));
  EXPECT_EQ(torch_version(folder_ / "none"), std::nullopt);
}

TEST_F(TorchInstalls, TheVariableWinsAndIsNeverReplaced) {
  add_library();
  write("version.py", "__version__ = '1.0'\n");
  ::setenv("REELGRAD_TORCH", folder_.c_str(), 1);
  EXPECT_EQ(find_torch()->version, "1.0");
  ::setenv("REELGRAD_TORCH", "/nonexistent", 1);
  std::string why;
  EXPECT_FALSE(find_torch(&why));
  EXPECT_EQ(why, "REELGRAD_TORCH=/nonexistent has no lib/libtorch.so");
}

TEST_F(TorchInstalls, OtherwiseTheOneOfTheBuildIsFoundWhereItStillIs) {
  ::unsetenv("REELGRAD_TORCH");
  std::string why;
  const auto torch = find_torch(&why);
  if (!torch) {
    EXPECT_THAT(why, HasSubstr("no lib/libtorch.so in "));
  } else {
    EXPECT_TRUE(fs::exists(torch->dir / "lib/libtorch.so"));
    EXPECT_NE(torch->version, "");
    EXPECT_EQ(why, "");
  }
}

// A torch folder among its packages, as pip leaves them, of libraries made by hand.
class TorchFiles : public ::testing::Test {
 protected:
  TorchFiles() {
    write_library("libc10.so", {.version_needs = {{"libc.so.6", {"GLIBC_2.17"}}}});
    write_library("libtorch_cpu.so",
                  {.version_needs = {{"libc.so.6", {"GLIBC_2.28"}}, {"libstdc++.so.6", {"GLIBCXX_3.4.19"}}}});
    write_library("libtorch.so", {});
  }

  void write(const std::string& name, const std::string& text) const { temporary_.write(name, text); }
  void write_library(const std::string& name, const test::ElfPlan& plan) const {
    write("torch/lib/" + name, test::elf_file(plan));
  }
  void write_version(const std::string& version, const std::string& cuda) const {
    write("torch/version.py", "__version__ = '" + version + "'\ncuda: Optional[str] = " + cuda + "\n");
  }
  TorchFacts facts() const { return torch_facts_of(dir_); }

  test::TemporaryFolder temporary_;
  const fs::path dir_ = temporary_ / "torch";
};

TEST_F(TorchFiles, TellAllOfAWheel) {
  write_version("2.11.0+cu130", "'13.0'");
  write_library("libtorch_cuda.so", {.version_needs = {{"libc.so.6", {"GLIBC_2.3.4"}}},
                                     .sections = {{".nv_fatbin", test::fat_binary({{2, 80}, {2, 90}, {1, 90}})}}});
  write("nvidia/cudnn/lib/libcudnn.so.9", "");
  write("nvidia/cudnn/include/cudnn_version.h",
        "/* x */\n#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 19\n#define CUDNN_PATCHLEVEL 0\n"
        "#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)\n");
  write("nvidia/nccl/lib/libnccl.so.2", "");
  write("nvidia_nccl_cu13-2.28.9.dist-info/METADATA", "");
  const TorchFacts torch = facts();
  EXPECT_EQ(torch.error, "");
  EXPECT_EQ(torch.dir, dir_.string());
  EXPECT_EQ(torch.version, "2.11.0+cu130");
  EXPECT_EQ(torch.cuda, "13.0");
  EXPECT_TRUE(torch.cuda_library);
  EXPECT_THAT(torch.architectures, ElementsAre("sm_80", "sm_90", "compute_90"));
  EXPECT_EQ(torch.cudnn, "9.19.0");
  EXPECT_EQ(torch.nccl, "2.28.9");
  EXPECT_EQ(torch.glibc_needed, "2.28");
  EXPECT_EQ(torch.libstdcxx_needed, "3.4.19");
  EXPECT_EQ(torch.outcome, Outcome::not_run);
  EXPECT_EQ(torch.cuda_mapped, std::nullopt);
}

TEST_F(TorchFiles, ACpuBuildIsSoFromItsFiles) {
  write_version("2.11.0+cpu", "None");
  const TorchFacts torch = facts();
  EXPECT_EQ(torch.error, "");
  EXPECT_EQ(torch.cuda, "");
  EXPECT_FALSE(torch.cuda_library);
  EXPECT_THAT(torch.architectures, IsEmpty());
  EXPECT_EQ(torch.glibc_needed, "2.28");
}

TEST_F(TorchFiles, AnArchiveHoldsItsLibrariesItself) {
  write("torch/build-version", "2.10.0+cu128\n");
  write_library("libtorch_cuda.so", {.sections = {{".rodata", "NCCL version %d\0NCCL version 2.27.5+cuda12.8\0"s}}});
  write_library("libcudnn.so.9", {});
  write_library("libcudnn_graph.so.9", {.sections = {{".rodata", "cudnn_version != x\0cudnn_version_9_10_2_21_\0"s}}});
  const TorchFacts torch = facts();
  EXPECT_EQ(torch.version, "2.10.0+cu128");
  EXPECT_EQ(torch.cuda, "12.8");
  EXPECT_EQ(torch.cudnn, "9.10.2");
  EXPECT_EQ(torch.nccl, "2.27.5");
}

TEST_F(TorchFiles, TheLibrariesOfACondaEnvironmentAreOutsideOfIt) {
  const fs::path dir = temporary_ / "env/lib/python3.11/site-packages/torch";
  write("env/lib/python3.11/site-packages/torch/version.py", "__version__ = '2.5.1'\ncuda: Optional[str] = '12.6'\n");
  write("env/conda-meta/history", "");
  write("env/lib/libtorch.so", test::elf_file({}));
  write("env/lib/libtorch_cuda.so", test::elf_file({}));
  write("env/lib/libnccl.so.2.23.4", test::elf_file({}));
  fs::create_symlink("libnccl.so.2.23.4", temporary_ / "env/lib/libnccl.so.2");
  write("env/include/cudnn_version.h", "#define CUDNN_MAJOR 9\n#define CUDNN_MINOR 3\n#define CUDNN_PATCHLEVEL 0\n");
  const TorchFacts torch = torch_facts_of(dir);
  EXPECT_EQ(torch.error, "");
  EXPECT_EQ(torch.dir, dir.string());
  EXPECT_EQ(torch.cuda, "12.6");
  EXPECT_TRUE(torch.cuda_library);
  EXPECT_EQ(torch.cudnn, "9.3.0");
  EXPECT_EQ(torch.nccl, "2.23.4");
}

TEST_F(TorchFiles, WhereTheKernelsCannotBeReadTheFlagsAre) {
  write_library("libtorch_cuda.so", {.sections = {{".nv_fatbin", "damaged"}}});
  EXPECT_THAT(facts().architectures, IsEmpty());
  write_library("libtorch_python.so", {.sections = {{".rodata", "sm_75 sm_80 compute_80\0"s}}});
  EXPECT_THAT(facts().architectures, ElementsAre("sm_75", "sm_80", "compute_80"));
}

TEST_F(TorchFiles, ABuildForOtherMakersCardsSaysSo) {
  write("torch/version.py", "__version__ = '2.3.0+rocm6.0'\ncuda = None\nhip: Optional[str] = '6.0.32830-d62f6a171'\n");
  EXPECT_EQ(facts().error, "2.3.0+rocm6.0 is built for ROCm 6.0.32830-d62f6a171, AMD's platform, and has no CUDA");
  EXPECT_EQ(facts().cuda, "");
  write("torch/version.py", "__version__ = '2.7.0+xpu'\ncuda = None\nhip: Optional[str] = None\nxpu = '20250000'\n");
  EXPECT_THAT(facts().error, HasSubstr("Intel"));
}

TEST_F(TorchFiles, DamageIsTold) {
  const std::string whole = test::elf_file({});
  write("torch/lib/libtorch_cuda.so", whole.substr(0, whole.size() - 1));
  EXPECT_THAT(facts().error, HasSubstr("libtorch_cuda.so ends too early, after"));
  write_library("libtorch_cpu.so", {.machine = EM_RISCV});
  EXPECT_THAT(facts().error, HasSubstr("libtorch_cpu.so was built for another kind of processor"));
  write("torch/lib/libc10.so", "");
  EXPECT_THAT(facts().error, HasSubstr("libc10.so is no library (0 bytes)"));
}

TEST_F(TorchFiles, AFolderWithoutALibraryIsNoTorch) {
  const TorchFacts torch = torch_facts_of(temporary_ / "none");
  EXPECT_EQ(torch.dir, "");
  EXPECT_EQ(torch.error, (temporary_ / "none").string() + " has no lib/libtorch.so");
}

// Opening cannot be undone: each happens in a process of its own, whose last words are compared.
void open_and_exit(const fs::path& dir) {
  const TorchFacts torch = probe_torch_opening(dir);
  std::cerr << (torch.outcome == Outcome::ok ? "opened" : "failed") << ", mapped "
            << (torch.cuda_mapped ? *torch.cuda_mapped ? "yes" : "no" : "unknown") << ": " << torch.error << ";\n";
  std::_Exit(0);  // no search for leaks in a torch that stays open
}

TEST_F(TorchFiles, OpeningShowsWhetherTheCudaLibraryComesAlong) {
  write_library("libtorch_cuda.so", {});
  EXPECT_EXIT(open_and_exit(dir_), ::testing::ExitedWithCode(0), "opened, mapped no: ;");
  write_library("libtorch.so", {.needed = {"libtorch_cuda.so"}});
  EXPECT_EXIT(open_and_exit(dir_), ::testing::ExitedWithCode(0), "opened, mapped yes: ;");
}

TEST_F(TorchFiles, WhatCannotBeOpenedIsSaidInTheLinkersWords) {
  write_library("libtorch.so", {.needed = {"libnot_there.so.9"}});
  EXPECT_EXIT(open_and_exit(dir_), ::testing::ExitedWithCode(0), "failed, mapped unknown: .*libnot_there.so.9");
  EXPECT_EXIT(open_and_exit(temporary_ / "none"), ::testing::ExitedWithCode(0),
              "failed, mapped unknown: .*none/lib/libtorch");
}

// The PyTorch that is installed here, by what it says of itself.
class InstalledTorch : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto torch = find_torch();
    if (!torch) GTEST_SKIP() << "no torch";
    dir_ = torch->dir;
  }

  fs::path dir_;
};

TEST_F(InstalledTorch, SaysWhatItsFilesSay) {
  const ProcessResult said = run_process(
      {REELGRAD_TEST_PYTHON, "-c",
       "import torch, json\n"
       "print(json.dumps([torch.__file__, torch.__version__, torch.version.cuda or '',\n"
       "  torch._C._cuda_getArchFlags().split() if torch.version.cuda else [], torch.backends.cudnn.version() or 0,\n"
       "  '.'.join(map(str, torch.cuda.nccl.version())) if torch.version.cuda else '']))\n"},
      std::chrono::minutes(1));
  if (said.exit_code != 0) GTEST_SKIP() << "torch cannot be imported: " << said.err;
  const auto answer = nlohmann::json::parse(said.out);
  if (fs::path(answer[0].get<std::string>()).parent_path() != dir_) GTEST_SKIP() << "Python has another torch";

  const auto begin = std::chrono::steady_clock::now();
  const TorchFacts torch = torch_facts_of(dir_);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));  // 0.03 s when the disk's cache is warm
  EXPECT_EQ(torch.error, "");
  EXPECT_EQ(torch.version, answer[1]);
  EXPECT_EQ(torch.cuda, answer[2]);
  EXPECT_EQ(torch.architectures, answer[3].get<std::vector<std::string>>());
  EXPECT_EQ(torch.nccl, answer[5]);
  int major = 0, minor = 0, patch = 0;
  EXPECT_EQ(std::sscanf(torch.cudnn.c_str(), "%d.%d.%d", &major, &minor, &patch), answer[4] == 0 ? -1 : 3);
  EXPECT_EQ(major * 10000 + minor * 100 + patch, answer[4].get<int>());
}

TEST_F(InstalledTorch, OpensWithItsCudaLibrary) {
  if (!fs::exists(dir_ / "lib/libtorch_cuda.so")) GTEST_SKIP() << "a CPU-only build";
  EXPECT_EXIT(open_and_exit(dir_), ::testing::ExitedWithCode(0), "opened, mapped yes: ;");
}

}  // namespace
}  // namespace reelgrad
