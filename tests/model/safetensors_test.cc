#include "model/safetensors.h"

#include <gtest/gtest.h>

#include "core/check.h"
#include "support/checkpoint_copy.h"
#include "support/temporary_folder.h"
#include "support/tensors.h"

namespace tessera {
namespace {

using testing::CheckpointCopy;
using testing::MessageOf;
using testing::SourcePath;

std::span<const uint8_t> AsBytes(const std::string& text) { return {reinterpret_cast<const uint8_t*>(text.data()), text.size()}; }

SafetensorsHeader Parse(const std::string& header, size_t data_bytes) {
  return ParseSafetensorsHeader(AsBytes(CheckpointCopy::WithHeader(header, std::string(data_bytes, '\0'))), "f");
}
std::string ErrorOf(const std::string& header, size_t data_bytes) {
  return MessageOf<Error>([&] { Parse(header, data_bytes); });
}

constexpr const char* kTwoTensors = R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                                    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}  )";

TEST(SafetensorsHeaderTest, ListsTensorsByOffset) {
  const SafetensorsHeader header = Parse(kTwoTensors, 12);
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.data_start, 8 + std::string(kTwoTensors).size());
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, Dtype::kBF16);
  EXPECT_EQ(header.tensors[0].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(header.tensors[1].begin, 4u);
  EXPECT_EQ(header.tensors[1].end, 12u);
}

TEST(SafetensorsHeaderTest, AcceptsScalarsEmptyTensorsAndNoTensorAtAll) {
  EXPECT_EQ(Parse(R"({"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"U8","shape":[0,7],"data_offsets":[8,8]}})", 8)
                .tensors.size(),
            2u);
  EXPECT_TRUE(Parse("{}", 0).tensors.empty());
}

TEST(SafetensorsHeaderTest, RefusesWhatDoesNotFitTheFile) {
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "f: b: needs data up to byte 12, the file has 11: it was cut by 1 bytes",
                      ErrorOf(kTwoTensors, 11));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "1 bytes follow the data", ErrorOf(kTwoTensors, 13));
  const auto error_of_bytes = [](const std::string& file) { return MessageOf<Error>([&] { ParseSafetensorsHeader(AsBytes(file), "f"); }); };
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "f: 0 bytes, too short", error_of_bytes(""));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "too short", error_of_bytes("1234567"));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "claims 9223372036854775807 bytes, at most 100000000",
                      error_of_bytes(std::string("\xff\xff\xff\xff\xff\xff\xff\x7f{}", 10)));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "claims 18446744073709551615 bytes",
                      error_of_bytes(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "its header claims 3 bytes, the file has 10",
                      error_of_bytes(std::string("\x03\0\0\0\0\0\0\0{}", 10)));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "does not start with an object", error_of_bytes(std::string(8, '\0')));
}

// Both sides of the bound on a header, told apart by the complaint about a file that is shorter than either.
TEST(SafetensorsHeaderTest, BoundsTheHeaderWhereTheFormatDoes) {
  std::string file = CheckpointCopy::WithHeader("{}", "");
  const auto error_of_length = [&file](uint64_t length) {
    std::memcpy(file.data(), &length, 8);
    return MessageOf<Error>([&] { ParseSafetensorsHeader(AsBytes(file), "f"); });
  };
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "claims 100000000 bytes, the file has 10", error_of_length(100'000'000));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "claims 100000001 bytes, at most 100000000 are allowed", error_of_length(100'000'001));
}

// Padding of 100,000 bytes, as writers that reserve room for the header leave it.
TEST(SafetensorsHeaderTest, AcceptsALongHeader) { EXPECT_TRUE(Parse("{}" + std::string(100'000 - 2, ' '), 0).tensors.empty()); }

TEST(SafetensorsHeaderTest, RefusesBadEntries) {
  const struct {
    const char* header;
    const char* message;
  } cases[] = {
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})",
       "b: its data, from byte 3, overlaps"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})", "a: stands twice"},
      {R"({"a":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "a: dtype stands twice"},
      {R"({"a":{"dtype":"F13","shape":[4],"data_offsets":[0,4]}})", "a: unknown dtype \"F13\""},
      {R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,4]}})", "do not hold the 5 bytes of U8 [5]"},
      {R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", "offsets 4 .. 0"},
      {R"({"a":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})", "overflows"},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "overflows"},
      {R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "-1 is negative"},
      {R"({"a":{"dtype":"U8","shape":[1.5],"data_offsets":[0,1]}})", "is no integer"},
      {R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", "too large"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", "more than 8 dimensions"},
      {R"({"a":{"dtype":"U8","shape":[[1]],"data_offsets":[0,1]}})", "a list is not expected"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "needs dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1]}})", "needs dtype, shape and data_offsets"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":{}}})", "unknown field \"x\""},
      {R"({"a":[]})", "a list is not expected"},
      {R"({"a":3})", "a number is not expected"},
      {R"({"a":null})", "null is not expected"},
      {R"({"a":{"dtype":{}}})", "an object is not expected"},
      {R"({"a":{"dtype":3}})", "a number is not expected"},
      {R"({"__metadata__":{"x":3}})", "a number is not expected"},
      {R"({"__metadata__":"x"})", "a string is not expected"},
      {R"({"a":)", "not valid JSON at byte"},
      {R"({}{})", "not valid JSON at byte"},
      {"{\"\xff\":{}}", "not valid JSON at byte"},
      {R"({"a\nb":3})", "a?b"},
  };
  for (const auto& [header, message] : cases) {
    const std::string error = ErrorOf(header, 7);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, message, error) << header;
    EXPECT_TRUE(error.starts_with("f: ")) << error;
    EXPECT_EQ(error.find('\n'), std::string::npos);
  }
}

TEST(CheckpointTest, OpensTheGoldenModels) {
  for (const char* relative : {"tests/golden/v41_tiny", "tests/golden/v4_tiny", "models/tiny"}) {
    const Checkpoint checkpoint = Checkpoint::Open(SourcePath(relative));
    EXPECT_EQ(checkpoint.files().size(), 2u);
    for (const char* shard : {CheckpointCopy::kFirstShard, CheckpointCopy::kSecondShard}) {
      for (const auto& [name, expected] : testing::ReadTensors(std::string(relative) + "/" + shard)) {
        const TensorData* tensor = checkpoint.Find(name);
        ASSERT_NE(tensor, nullptr) << name;
        EXPECT_EQ(DtypeName(tensor->dtype), expected.dtype);
        EXPECT_EQ(tensor->shape, expected.shape);
        EXPECT_EQ(std::string(tensor->bytes.begin(), tensor->bytes.end()), expected.bytes) << name;
        EXPECT_EQ(*tensor->file, SourcePath(std::string(relative) + "/" + shard));
      }
    }
    EXPECT_EQ(checkpoint.Find("no.such.tensor"), nullptr);
  }
}

class BrokenCheckpointTest : public ::testing::Test {
 protected:
  std::string OpenError() const {
    const std::string message = MessageOf<Error>([&] { Checkpoint::Open(copy_.path()); });
    EXPECT_EQ(message.find('\n'), std::string::npos);
    return message;
  }
  CheckpointCopy copy_{"tests/golden/v41_tiny"};
};

TEST_F(BrokenCheckpointTest, MissingDirectory) {
  EXPECT_EQ(MessageOf<Error>([] { Checkpoint::Open("/no/such/model"); }), "/no/such/model: no such directory");
}

TEST_F(BrokenCheckpointTest, MissingShardIsListed) {
  copy_.Remove(CheckpointCopy::kSecondShard);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "1 of 2 shards of the index missing: model-00002-of-00002.safetensors", OpenError());
}

TEST_F(BrokenCheckpointTest, ShardCutByOneByte) {
  const std::string content = copy_.Read(CheckpointCopy::kSecondShard);
  copy_.Write(CheckpointCopy::kSecondShard, content.substr(0, content.size() - 1));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "model-00002-of-00002.safetensors: ", OpenError());
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "it was cut by 1 bytes", OpenError());
}

TEST_F(BrokenCheckpointTest, HeaderLengthBeyondTheFile) {
  std::string content = copy_.Read(CheckpointCopy::kFirstShard);
  content.replace(0, 8, std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8));
  copy_.Write(CheckpointCopy::kFirstShard, content);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "model-00001-of-00002.safetensors: its header claims 9223372036854775807 bytes", OpenError());
}

TEST_F(BrokenCheckpointTest, OverlappingOffsets) {
  copy_.EditHeader(CheckpointCopy::kFirstShard, [](Json& header) { header["norm.weight"]["data_offsets"] = {0, 256}; });
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "overlaps the tensor before it", OpenError());
}

TEST_F(BrokenCheckpointTest, EmptyShard) {
  copy_.Write(CheckpointCopy::kFirstShard, "");
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "model-00001-of-00002.safetensors: 0 bytes, too short", OpenError());
}

TEST_F(BrokenCheckpointTest, IndexNamesATensorTheShardLacks) {
  copy_.EditJson(CheckpointCopy::kIndex, [](Json& index) { index["weight_map"]["extra.weight"] = CheckpointCopy::kFirstShard; });
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "model-00001-of-00002.safetensors: extra.weight: the index promises it, the shard lacks it",
                      OpenError());
}

TEST_F(BrokenCheckpointTest, IndexNamesTheWrongShard) {
  copy_.EditJson(CheckpointCopy::kIndex, [](Json& index) { index["weight_map"]["norm.weight"] = CheckpointCopy::kSecondShard; });
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "model-00002-of-00002.safetensors: norm.weight: the index promises it", OpenError());
}

TEST_F(BrokenCheckpointTest, TensorInTwoShards) {
  copy_.EditHeader(CheckpointCopy::kSecondShard, [](Json& header) {
    header["norm.weight"] = {{"dtype", "U8"}, {"shape", {0}}, {"data_offsets", {0, 0}}};
  });
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "norm.weight: also in", OpenError());
}

TEST_F(BrokenCheckpointTest, IndexLeadsOutOfTheDirectory) {
  for (const char* file : {"../x.safetensors", "/etc/passwd", "", ".."}) {
    copy_.EditJson(CheckpointCopy::kIndex, [&](Json& index) { index["weight_map"]["norm.weight"] = file; });
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "norm.weight: \"" + std::string(file) + "\" is no file name", OpenError());
  }
}

TEST_F(BrokenCheckpointTest, IndexIsNotAnIndex) {
  for (const char* text : {"", "[]", "{}", "{\"weight_map\": {}}", "{\"weight_map\": {\"a\": 3}}", "{\"weight_map\": {\"a\": {}}}",
                           "{\"weight_map\": []}", "{\"weight_map\": {\"a\": \"x\", \"a\": \"y\"}}", "3"}) {
    copy_.Write(CheckpointCopy::kIndex, text);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "model.safetensors.index.json: ", OpenError()) << text;
  }
  copy_.Write(CheckpointCopy::kIndex, std::string(1000, '[') + std::string(1000, ']'));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "nested deeper", OpenError());
}

TEST_F(BrokenCheckpointTest, NoIndexMeansAllShards) {
  copy_.Remove(CheckpointCopy::kIndex);
  EXPECT_EQ(OpenError(), "");
  EXPECT_EQ(Checkpoint::Open(copy_.path()).files().size(), 2u);
  copy_.Remove(CheckpointCopy::kFirstShard);
  copy_.Remove(CheckpointCopy::kSecondShard);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "no model.safetensors.index.json and no *.safetensors", OpenError());
}

TEST_F(BrokenCheckpointTest, IdFollowsConfigHeaderSizeAndTime) {
  const uint64_t id = Checkpoint::Open(copy_.path()).checkpoint_id();
  EXPECT_EQ(Checkpoint::Open(copy_.path()).checkpoint_id(), id);
  const std::string shard = copy_.File(CheckpointCopy::kSecondShard);
  const auto time = std::filesystem::last_write_time(shard);
  std::filesystem::last_write_time(shard, time + std::chrono::seconds(1));
  EXPECT_NE(Checkpoint::Open(copy_.path()).checkpoint_id(), id);
  std::filesystem::last_write_time(shard, time);
  EXPECT_EQ(Checkpoint::Open(copy_.path()).checkpoint_id(), id);
  copy_.EditJson("config.json", [](Json& config) { config["note"] = 1; });
  EXPECT_NE(Checkpoint::Open(copy_.path()).checkpoint_id(), id);
}

TEST(WriteSafetensorsTest, IsReadBack) {
  const testing::TemporaryFolder directory;
  const float values[6] = {1, 2, 3, 4, 5, 6};
  const int64_t ids[2] = {-1, 7};
  const auto bytes_of = [](const auto& array) { return std::span(reinterpret_cast<const uint8_t*>(array), sizeof array); };
  WriteSafetensors(
      directory.path() + "/model.safetensors",
      {{"logits.0", Dtype::kF32, {2, 3}, bytes_of(values)}, {"ids", Dtype::kI64, {2}, bytes_of(ids)}, {"none", Dtype::kF32, {0, 3}, {}}});
  const Checkpoint checkpoint = Checkpoint::Open(directory.path());
  ASSERT_EQ(checkpoint.tensors().size(), 3u);
  const TensorData* logits = checkpoint.Find("logits.0");
  EXPECT_EQ(logits->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(std::memcmp(logits->bytes.data(), values, sizeof values), 0);
  EXPECT_EQ(std::memcmp(checkpoint.Find("ids")->bytes.data(), ids, sizeof ids), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(logits->bytes.data()) % 8, 0u);
}

TEST(WriteSafetensorsTest, NamesThePathThatCannotBeWritten) {
  const std::vector<uint8_t> zeros(1 << 20);
  const std::vector<TensorToWrite> tensors = {{"x", Dtype::kU8, {1 << 20}, zeros}};
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "/no/such/dir/x.safetensors: cannot open",
                      MessageOf<Error>([&] { WriteSafetensors("/no/such/dir/x.safetensors", tensors); }));
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "/dev/full: cannot write: No space left",
                      MessageOf<Error>([&] { WriteSafetensors("/dev/full", tensors); }));
}

}  // namespace
}  // namespace tessera
