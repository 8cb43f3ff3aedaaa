#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <utility>

#include "core/check.h"
#include "support/temporary_folder.h"

namespace tessera {
namespace {

// The message of the Error that `function` throws, "" when it throws none.
template <class Function>
std::string ErrorOf(Function function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FileTest, WriteReadRoundTrip) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/a";
  std::string content(200000, 'x');
  content[7] = '\0';
  WriteFile(path, content);
  EXPECT_EQ(ReadFile(path, 200000), content);
  WriteFile(path, "short");
  EXPECT_EQ(ReadFile(path, 5), "short");
  EXPECT_TRUE(FileExists(path));
  EXPECT_FALSE(FileExists(path + "b"));
}

TEST(FileTest, ReadIsBounded) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Write("a", "123456");
  EXPECT_EQ(ErrorOf([&] { (void)ReadFile(path, 5); }), path + ": larger than the 5 bytes allowed here");
  EXPECT_NE(ErrorOf([] { (void)ReadFile("/dev/zero", 1 << 20); }), "");
}

TEST(FileTest, MappedBytesAreTheFile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.Write("a", "weights");
  MappedFile file(path);
  EXPECT_EQ(std::string(file.bytes().begin(), file.bytes().end()), "weights");
  EXPECT_EQ(file.path(), path);
  MappedFile moved(std::move(file));
  EXPECT_TRUE(file.bytes().empty());  // NOLINT: what a moved-from file holds is promised
  EXPECT_EQ(moved.bytes().size(), 7u);
  MappedFile other;
  other = std::move(moved);
  EXPECT_EQ(other.bytes()[0], 'w');
}

TEST(FileTest, AnEmptyFileMapsToNothing) {
  const testing::TemporaryFolder folder;
  const MappedFile file(folder.Write("empty", ""));
  EXPECT_TRUE(file.bytes().empty());
}

TEST(FileTest, MissingAndUnreadableFilesAreErrorsWithThePath) {
  const testing::TemporaryFolder folder;
  const std::string missing = folder.path() + "/none";
  EXPECT_EQ(ErrorOf([&] { (void)ReadFile(missing, 10); }), missing + ": cannot open: No such file or directory");
  EXPECT_EQ(ErrorOf([&] { MappedFile file(missing); }), missing + ": cannot open: No such file or directory");
  EXPECT_EQ(ErrorOf([&] { (void)ReadFile(folder.path(), 10); }), folder.path() + ": is a directory, a file was expected");
  EXPECT_EQ(ErrorOf([&] { MappedFile file(folder.path()); }), folder.path() + ": is a directory, a file was expected");
}

TEST(FileTest, AFifoCannotBeMapped) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/fifo";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(ErrorOf([&] { MappedFile file(path); }), path + ": not a regular file, it cannot be mapped");
}

TEST(FileTest, AFullDeviceAndANonWritablePathAreErrors) {
  const testing::TemporaryFolder folder;
  EXPECT_EQ(ErrorOf([] { WriteFile("/dev/full", "x"); }), "/dev/full: cannot write: No space left on device");
  EXPECT_NE(ErrorOf([&] { WriteFile(folder.path() + "/no/such/folder", "x"); }), "");
  EXPECT_NE(ErrorOf([&] { WriteFile(folder.path(), "x"); }), "");
}

}  // namespace
}  // namespace tessera
