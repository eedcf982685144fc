#include "reelgrad/base/sha256.h"

#include <gtest/gtest.h>

#include <fstream>

#include "reelgrad/base/error.h"
#include "reelgrad/base/testing/temporary_folder.h"

namespace reelgrad {
namespace {

// Of FIPS 180-4's examples, and of sha256sum.
TEST(Sha256, IsThePublishedOne) {
  const test::TemporaryFolder folder;
  const auto hash_of = [&](const std::string& text) {
    std::ofstream(folder / "file", std::ios::binary) << text;
    return sha256_of_file(folder / "file");
  };
  EXPECT_EQ(hash_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hash_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hash_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hash_of(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hash_of(std::string(2 << 20, 'a')), "5256ec18f11624025905d057d6befb03d77b243511ac5f77ed5e0221ce6d84b5");
}

TEST(Sha256, OfAMissingFileFails) {
  EXPECT_THROW(sha256_of_file("/nonexistent/file"), Error);
}

}  // namespace
}  // namespace reelgrad
