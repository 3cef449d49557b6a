package modelarchive

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/diskspace/diskspacetest"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
)

// model creates a folder with a model and with files that are not part of a model.
func model(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	err := checkpoint.WriteDir(dir, checkpoint.Snapshot{
		Files: []checkpoint.File{
			{Name: "config.json", Data: []byte(`{"architectures":["LlamaForCausalLM"],"vocab_size":2,"hidden_size":3,"num_hidden_layers":1}`)},
			{Name: "tokenizer.json", Data: []byte("{}")},
		},
		Tensors: []safetensors.Tensor{
			{Name: "model.embed_tokens.weight", DType: safetensors.BF16, Shape: []int64{2, 3}, Data: []byte("0123456789ab")},
			{Name: "model.norm.weight", DType: safetensors.F32, Shape: []int64{1}, Data: []byte{0, 0, 0, 1}},
		},
	}, checkpoint.Facts{RunID: "r"}.Extra())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"private-notes.txt", "optimizer.safetensors"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func pack(t testing.TB, dir string) []byte {
	t.Helper()
	var done, whole int64
	p, err := Open(t.Context(), dir, func(d, a int64) { done, whole = d, a })
	if err != nil {
		t.Fatal(err)
	}
	if done != whole || whole != p.Size()-int64(len(p.head)) {
		t.Errorf("progress reports %d of %d bytes hashed", done, whole)
	}
	if p.Parameters() != 2*3+1 {
		t.Errorf("a model of %d parameters", p.Parameters())
	}
	all, err := io.ReadAll(io.NewSectionReader(p, 0, p.Size()))
	if err != nil || int64(len(all)) != p.Size() {
		t.Fatalf("%d of %d bytes, %v", len(all), p.Size(), err)
	}
	return all
}

func TestUnpackMakesTheSameModel(t *testing.T) {
	dir, got := model(t), filepath.Join(t.TempDir(), "got")
	packed := pack(t, dir)
	if err := Unpack(iotest.HalfReader(bytes.NewReader(packed)), got); err != nil {
		t.Fatal(err)
	}
	want, err := checkpoint.DigestDir(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if digest, err := checkpoint.DigestDir(t.Context(), got, nil); err != nil || digest != want {
		t.Errorf("digest %x, %v; want %x", digest, err, want)
	}
	if bytes.Contains(packed, []byte("secret")) || bytes.Contains(packed, []byte(checkpoint.FactsFile)) {
		t.Error("the archive has files that do not belong to the model")
	}
	if err := Unpack(bytes.NewReader(packed), got); err != nil {
		t.Errorf("again: %v", err)
	}
}

// TestEveryPartCanBeReadAlone reads all pieces of some lengths.
func TestEveryPartCanBeReadAlone(t *testing.T) {
	dir := model(t)
	whole := pack(t, dir)
	p, err := Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{1, 7, 100, len(whole)} {
		piece := make([]byte, size)
		for at := 0; at <= len(whole); at++ {
			n, err := p.ReadAt(piece, int64(at))
			want := whole[at:min(at+size, len(whole))]
			if !bytes.Equal(piece[:n], want) || (err == nil) != (n == size) {
				t.Fatalf("%d bytes at %d: %d, %v", size, at, n, err)
			}
		}
	}
}

func TestUnpackRefuses(t *testing.T) {
	good := pack(t, model(t))
	changed := func(change func(b []byte) []byte) []byte { return change(bytes.Clone(good)) }
	first := len(magic) + 2
	for name, packed := range map[string][]byte{
		"nothing":       nil,
		"another kind":  []byte(strings.Repeat("x", 100)),
		"cut":           good[:len(good)-1],
		"cut head":      good[:first+5],
		"more":          append(bytes.Clone(good), 'x'),
		"another byte":  changed(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }),
		"no files":      append([]byte(magic), 0, 0),
		"too many":      append([]byte(magic), 0xff, 0xff),
		"another name":  bytes.Replace(good, []byte("config.json"), []byte("../conf.jsn"), 1),
		"another order": bytes.Replace(good, []byte("config.json"), []byte("vocab.json\x00"), 1),
		"huge": changed(func(b []byte) []byte {
			binary.LittleEndian.PutUint64(b[first+1+len("config.json"):], 1<<62)
			return b
		}),
	} {
		dir := filepath.Join(t.TempDir(), "got")
		if err := Unpack(bytes.NewReader(packed), dir); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something was made: %v", name, err)
		}
	}
}

func TestOpenWantsAModel(t *testing.T) {
	if _, err := Open(t.Context(), t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("error %v", err)
	}
}

// FuzzUnpack unpacks arbitrary bytes. The result must be an error or a model.
func FuzzUnpack(f *testing.F) {
	f.Add(pack(f, model(f)))
	f.Add([]byte(magic))
	dir := filepath.Join(f.TempDir(), "got")
	fuzztest.Run(f, func(t *testing.T, packed []byte) {
		if err := Unpack(bytes.NewReader(packed), dir); err != nil {
			return
		}
		if _, err := checkpoint.ReadDir(dir); err != nil {
			t.Fatal(err)
		}
	})
}

// TestNoSpaceForAModel checks that a model that does not fit is refused before its first file.
func TestNoSpaceForAModel(t *testing.T) {
	packed, got := pack(t, model(t)), filepath.Join(t.TempDir(), "got")
	for _, free := range []uint64{0, 10} {
		from := bytes.NewReader(packed)
		err := unpack(from, got, func(string) diskspace.Space { return diskspace.Bytes(free) })
		if !errors.Is(err, diskspace.ErrTooLittle) || !strings.Contains(err.Error(), got) || from.Len() < len(packed)/2 {
			t.Errorf("%d bytes free: %v, %d of %d bytes are left", free, err, from.Len(), len(packed))
		}
	}
	if _, err := os.Stat(got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder was made: %v", err)
	}
	if err := unpack(bytes.NewReader(packed), got, func(string) diskspace.Space { return diskspace.Bytes(1 << 20) }); err != nil {
		t.Error(err)
	}
}

// TestDiskFillsDuringUnpack checks that no part of a model is left in its place.
func TestDiskFillsDuringUnpack(t *testing.T) {
	dir := diskspacetest.Mount(t, 8<<10)
	got := filepath.Join(dir, "got")
	err := unpack(bytes.NewReader(pack(t, model(t))), got, func(string) diskspace.Space { return diskspace.Space{} })
	failed, ok := errors.AsType[*fs.PathError](err)
	if !diskspace.IsFull(err) || !ok {
		t.Fatal(err)
	}
	golden.Message(t, "full", err, filepath.Base(filepath.Dir(failed.Path)), "UNFINISHED")
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
}
