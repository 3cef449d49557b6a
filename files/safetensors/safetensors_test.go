package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"pgregory.net/rapid"
)

// file joins a header and data, with the correct length prefix.
func file(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	b = append(b, header...)
	return append(b, make([]byte, data)...)
}

// encode returns the bytes of the file that Write writes.
func encode(tensors []Tensor, metadata map[string]string) ([]byte, error) {
	header, order, err := encodeHeader(tensors, metadata)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	err = encodeTo(&buffer, header, order, whole)
	return buffer.Bytes(), err
}

// decode is Read for the bytes of a file.
func decode(b []byte) ([]Tensor, map[string]string, error) {
	return readFrom(bytes.NewReader(b), int64(len(b)))
}

// TestReferenceFile reads a file that the reference implementation wrote
// (scripts/reference/safetensors_vectors.py) and writes the same bytes again.
func TestReferenceFile(t *testing.T) {
	path := filepath.Join("testdata", "reference.safetensors")
	tensors, metadata, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(tensors) != 19 || metadata["format"] != "pt" {
		t.Errorf("found %d tensors, metadata %v", len(tensors), metadata)
	}
	i := slices.IndexFunc(tensors, func(t Tensor) bool { return t.Name == "scalar" })
	scalar := tensors[i]
	if got := math.Float32frombits(binary.LittleEndian.Uint32(scalar.Data)); got != -1.5 || len(scalar.Shape) != 0 {
		t.Errorf("scalar = %v of shape %v", got, scalar.Shape)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := encode(tensors, metadata)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("encoding differs from the reference's:\n got %q\nwant %q", got, want)
	}
}

func TestDecodeRejects(t *testing.T) {
	const one = `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`
	tests := []struct {
		name string
		file []byte
	}{
		{"empty file", nil},
		{"part of the length", []byte{1, 2, 3}},
		{"huge header", binary.LittleEndian.AppendUint64(nil, math.MaxUint64)},
		{"header over the cap", binary.LittleEndian.AppendUint64(nil, maxHeaderSize+1)},
		{"pointer", []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1234\n")},
		{"header longer than file", binary.LittleEndian.AppendUint64(nil, 100)},
		{"no header", file("", 0)},
		{"space before the object", file(" "+one, 8)},
		{"array", file("[]", 0)},
		{"cut JSON", file(one[:20], 8)},
		{"text after the object", file(one+"x", 8)},
		{"line feed as padding", file(one+"\n", 8)},
		{"not UTF-8", file("{\"\xff\":1}", 0)},
		{"data truncated", file(one, 7)},
		{"data too long", file(one, 9)},
		{"data without tensors", file("{}", 1)},
		{"duplicate name", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0)},
		{"duplicate by escape", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0)},
		{"duplicate field", file(`{"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0)},
		{"duplicate metadata", file(`{"__metadata__":{"a":"","a":""}}`, 0)},
		{"metadata not text", file(`{"__metadata__":{"a":1}}`, 0)},
		{"metadata nested", file(`{"__metadata__":{"a":{}}}`, 0)},
		{"unknown field", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}}`, 0)},
		{"other letter case", file(`{"a":{"DType":"U8","shape":[0],"data_offsets":[0,0]}}`, 0)},
		{"missing field", file(`{"a":{"dtype":"U8","shape":[0]}}`, 0)},
		{"unknown dtype", file(`{"a":{"dtype":"F33","shape":[2],"data_offsets":[0,8]}}`, 8)},
		{"size differs", file(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8)},
		{"end before begin", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8)},
		{"three offsets", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}`, 8)},
		{"negative dimension", file(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8)},
		{"fraction", file(`{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8)},
		{"exponent", file(`{"a":{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}}`, 8)},
		{"shape overflows", file(`{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}`, 0)},
		{"bytes overflow", file(`{"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}}`, 0)},
		{"wraps to zero", file(`{"a":{"dtype":"F64","shape":[2147483648,4294967296,2],"data_offsets":[0,0]}}`, 0)},
		{"half a byte", file(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1)},
		{"overlap", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3)},
		{"same bytes twice", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2)},
		{"hole", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}}`, 3)},
		{"hole at the start", file(`{"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}`, 2)},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, _, err := decode(test.file)
			if !errors.Is(err, errInvalid) {
				t.Errorf("error = %v, want errInvalid", err)
			}
			golden.Message(t, test.name, err)
			if _, err := ReadHeader(bytes.NewReader(test.file), int64(len(test.file))); !errors.Is(err, errInvalid) {
				t.Errorf("header: error = %v, want errInvalid", err)
			}
		})
	}
}

// TestReadHeader checks that the tensors are returned by name with their offsets, and that the data
// is left to read.
func TestReadHeader(t *testing.T) {
	content := file(`{"b":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"__metadata__":{"k":"v"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[3,11]}}`, 11)
	r := bytes.NewReader(content)
	got, err := ReadHeader(r, int64(len(content)))
	want := Header{
		Tensors:  []Entry{{"a", F32, []int64{1, 2}, 3, 11}, {"b", U8, []int64{3}, 0, 3}},
		Metadata: map[string]string{"k": "v"}, DataSize: 11,
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || r.Len() != 11 {
		t.Errorf("%v, %d bytes left; %s", err, r.Len(), diff)
	}
	for _, length := range []int{0, 5, 8, 30} {
		if _, err := ReadHeader(bytes.NewReader(content[:length]), int64(len(content))); !errors.Is(err, errInvalid) {
			t.Errorf("the first %d bytes of a longer file: %v", length, err)
		}
	}
}

func TestEncodeRejects(t *testing.T) {
	tests := []struct {
		name    string
		tensors []Tensor
	}{
		{"twice the same name", []Tensor{{Name: "a", DType: U8, Shape: []int64{0}}, {Name: "a", DType: I8, Shape: []int64{0}}}},
		{"reserved name", []Tensor{{Name: "__metadata__", DType: U8, Shape: []int64{0}}}},
		{"name not UTF-8", []Tensor{{Name: "\xff", DType: U8, Shape: []int64{0}}}},
		{"data too short", []Tensor{{Name: "a", DType: F32, Shape: []int64{2}, Data: make([]byte, 7)}}},
		{"negative dimension", []Tensor{{Name: "a", DType: F32, Shape: []int64{-1}}}},
		{"unknown dtype", []Tensor{{Name: "a", DType: "F33", Shape: []int64{0}}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.safetensors")
			if err := Write(path, test.tensors, nil); !errors.Is(err, errInvalid) {
				t.Errorf("error = %v, want errInvalid", err)
			}
			if entries, _ := os.ReadDir(filepath.Dir(path)); len(entries) != 0 {
				t.Errorf("left %v behind", entries)
			}
		})
	}
}

func anyTensors() *rapid.Generator[[]Tensor] {
	return rapid.Custom(func(t *rapid.T) []Tensor {
		names := rapid.SliceOfNDistinct(rapid.String().Filter(func(s string) bool { return s != metadataKey }), 0, 8, rapid.ID).Draw(t, "names")
		slices.Sort(names)
		tensors := make([]Tensor, len(names))
		for i, name := range names {
			dtype := dtypes[rapid.IntRange(0, len(dtypes)-1).Draw(t, "dtype")].name
			shape := rapid.SliceOfN(rapid.Int64Range(0, 4), 0, 3).Draw(t, "shape")
			if dtype == F4 || dtype == F6E2M3 || dtype == F6E3M2 {
				shape = append(shape, 4)
			}
			size, err := Size(dtype, shape)
			if err != nil {
				t.Fatal(err)
			}
			tensors[i] = Tensor{name, dtype, shape, rapid.SliceOfN(rapid.Byte(), int(size), int(size)).Draw(t, "data")}
		}
		return tensors
	})
}

func TestRoundTripChangesNoBit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.safetensors")
	rapid.Check(t, func(t *rapid.T) {
		tensors := anyTensors().Draw(t, "tensors")
		metadata := rapid.MapOfN(rapid.String(), rapid.String(), 1, 3).Draw(t, "metadata")
		encoded, err := encode(tensors, metadata)
		if err != nil {
			t.Fatal(err)
		}
		got, gotMetadata, err := decode(encoded)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tensors, got); diff != "" || !cmp.Equal(metadata, gotMetadata) {
			t.Fatalf("decoded differs: %s", diff)
		}
		if err := os.WriteFile(path, encoded, 0o600); err != nil {
			t.Fatal(err)
		}
		fromFile, _, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tensors, fromFile); diff != "" {
			t.Fatalf("read differs: %s", diff)
		}
	})
}

func TestWriteReplaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.safetensors")
	for i := range 2 {
		tensor := Tensor{"a", U8, []int64{1}, []byte{byte(i)}}
		if err := Write(path, []Tensor{tensor}, nil); err != nil {
			t.Fatal(err)
		}
		got, metadata, err := Read(path)
		if err != nil || metadata != nil || !cmp.Equal(got, []Tensor{tensor}) {
			t.Errorf("read %v, %v, %v", got, metadata, err)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left %v behind", entries)
	}
}

func TestReadNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "cut.safetensors")
	if err := os.WriteFile(path, file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Read(path); !errors.Is(err, errInvalid) || !strings.Contains(err.Error(), path) {
		t.Errorf("error = %v, want errInvalid naming the file", err)
	}
	if _, _, err := Read(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error = %v, want ErrNotExist", err)
	}
	if _, _, err := Read(dir); err == nil {
		t.Error("read a folder")
	}
}

func FuzzDecode(f *testing.F) {
	reference, err := os.ReadFile(filepath.Join("testdata", "reference.safetensors"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(reference)
	f.Add(file("{}", 0))
	f.Add(file(`{"__metadata__":{"a":"b"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8))
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		tensors, metadata, err := decode(b)
		if err != nil {
			if !errors.Is(err, errInvalid) {
				t.Fatalf("error %v is not errInvalid", err)
			}
			return
		}
		header, err := ReadHeader(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(header.Tensors) != len(tensors) {
			t.Fatalf("header of %d tensors, %v; the file has %d", len(header.Tensors), err, len(tensors))
		}
		data := b[int64(len(b))-header.DataSize:]
		for i, e := range header.Tensors {
			if e.Name != tensors[i].Name || !bytes.Equal(data[e.Begin:e.End], tensors[i].Data) {
				t.Fatalf("%+v is not tensor %q", e, tensors[i].Name)
			}
		}
		encoded, err := encode(tensors, metadata)
		if err != nil {
			t.Fatalf("the decoded tensors do not encode: %v", err)
		}
		again, _, err := decode(encoded)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(tensors) {
			t.Fatalf("round trip: %v", err)
		}
	})
}
