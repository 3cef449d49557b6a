package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// formats are files of scripts/reference/token_files.py, with the ids 0, 1000, 2000 and so on.
var formats = map[string]int{
	"datatrove-2.ds": 2, "datatrove-4.ds": 4,
	"megatron-int16.bin": 2, "megatron-uint16.bin": 2, "megatron-int32.bin": 4, "megatron-int64.bin": 8,
	"llmc-gpt2.bin": 2, "llmc-llama3.bin": 4,
}

// copyFormat copies a file of formats, and its description, to a new folder.
func copyFormat(t *testing.T, name string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for _, file := range append(tokens.Sidecars(name), name) {
		text, err := os.ReadFile(filepath.Join("testdata", "formats", file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, name)
}

func TestFilesOfOtherProgramsSayTheirTokenSize(t *testing.T) {
	for name, size := range formats {
		t.Run(name, func(t *testing.T) {
			path := copyFormat(t, name)
			for _, at := range []string{path, filepath.Dir(path)} {
				for _, o := range []Options{{SeqLen: 8, VocabSize: 128256}, {SeqLen: 8}, {SeqLen: 8, TokenSize: size, VocabSize: 128256, Claim: tokens.Presumed}} {
					folder := open(t, at, o)
					if folder.TokenSize() != size {
						t.Errorf("tokens of %d bytes, want %d", folder.TokenSize(), size)
					}
					read, err := folder.Sequences(context.Background(), assign.BatchID{End: folder.Len()})
					if err != nil {
						t.Fatal(err)
					}
					for i, sequence := range read {
						for j, id := range sequence {
							if want := int32(8*i+j) * 1000; id != want {
								t.Fatalf("sequence %d has %d at %d, want %d", i, id, j, want)
							}
						}
					}
				}
			}
			for _, other := range []int{2, 4, 8} {
				folder, err := Open(path, Options{SeqLen: 1, TokenSize: other, VocabSize: 128256})
				if err == nil {
					err = folder.Close()
				}
				if wrong := other != size; errors.Is(err, tokens.ErrWrongSize) != wrong {
					t.Errorf("read as tokens of %d bytes: %v", other, err)
				}
			}
		})
	}
}

func TestFilesThatAreNotWhatTheirSidecarSays(t *testing.T) {
	tests := map[string]struct {
		name string
		file string // to change
		at   int    // offset of the change; -1: the end of the file is cut off
		to   []byte
	}{
		"datatrove, cut off":    {"datatrove-4.ds", "datatrove-4.ds", -1, nil},
		"datatrove, odd size":   {"datatrove-4.ds", "datatrove-4.ds.metadata", 12, []byte("3")},
		"Megatron, cut off":     {"megatron-int32.bin", "megatron-int32.bin", -1, nil},
		"Megatron, bytes":       {"megatron-int32.bin", "megatron-int32.idx", 17, []byte{1}},
		"Megatron, type":        {"megatron-int32.bin", "megatron-int32.idx", 17, []byte{99}},
		"Megatron, version":     {"megatron-int32.bin", "megatron-int32.idx", 9, []byte{2}},
		"Megatron, many":        {"megatron-int32.bin", "megatron-int32.idx", 18, []byte{255, 255, 255, 255, 255, 255, 255, 255}},
		"Megatron, large place": {"megatron-int32.bin", "megatron-int32.idx", 34 + 8 + 8 + 7, []byte{255}},
		"llm.c, cut off":        {"llmc-llama3.bin", "llmc-llama3.bin", -1, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			path := copyFormat(t, test.name)
			file := filepath.Join(filepath.Dir(path), test.file)
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if test.at < 0 {
				text = text[:len(text)-4]
			} else {
				copy(text[test.at:], test.to)
			}
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
			_, err = Open(path, Options{SeqLen: 1, VocabSize: 128256})
			golden.Message(t, name, err)
		})
	}
}

// TestOtherSidecarsSayNothing reads a token file next to files that have the names of sidecars, but
// a different content.
func TestOtherSidecarsSayNothing(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.ds"), count(0, 9)...)
	for name, text := range map[string]string{"a.ds.metadata": "{}", "a.idx": "something else that is long enough for a header"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	open(t, dir, Options{SeqLen: 4, VocabSize: 100})
}

// bare writes a token file without a description of its size.
func bare(t *testing.T, size int, ids ...int) (path string) {
	t.Helper()
	var raw []byte
	for _, id := range ids {
		switch size {
		case 2:
			raw = binary.LittleEndian.AppendUint16(raw, uint16(id))
		case 4:
			raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
		default:
			raw = binary.LittleEndian.AppendUint64(raw, uint64(id))
		}
	}
	path = filepath.Join(t.TempDir(), "bare.bin")
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// oneALine returns two-byte tokens that look like larger tokens: a letter, a line break and so on,
// as bytes.
func oneALine() (ids []int) {
	for i := range 2000 {
		ids = append(ids, 'a'+i%26, '\n')
	}
	return ids
}

// TestLooksDoNotCountAgainstWords reads files that look like larger tokens than they have. A stated
// size has precedence, unless only a run's location states it.
func TestLooksDoNotCountAgainstWords(t *testing.T) {
	beside := map[string]func(t *testing.T, path string){
		"nothing": func(*testing.T, string) {},
		"data.json": func(t *testing.T, path string) {
			writeManifest(t, filepath.Dir(path), manifest.Manifest{
				Version: 1, TokenSizeInBytes: 2, Files: []manifest.File{{Name: "bare.bin", Tokens: 4000, SHA256: "aa"}},
			})
		},
		"metadata": func(t *testing.T, path string) {
			if err := os.WriteFile(path+".metadata", []byte("letters|2\n4000\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		"metadata without a count": func(t *testing.T, path string) {
			if err := os.WriteFile(path+".metadata", []byte("NAME|2"), 0o644); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, describe := range beside {
		for _, o := range []Options{
			{VocabSize: 256}, {VocabSize: 256, TokenSize: 2}, {TokenSize: 2},
			{VocabSize: 256, TokenSize: 2, Claim: tokens.OfLocation}, {VocabSize: 256, TokenSize: 2, Claim: tokens.Presumed},
		} {
			path := bare(t, 2, oneALine()...)
			describe(t, path)
			o.SeqLen = 4
			folder, err := Open(filepath.Dir(path), o)
			if err == nil {
				if folder.TokenSize() != 2 {
					t.Errorf("%s, %+v: %d bytes", name, o, folder.TokenSize())
				}
				err = folder.Close()
			}
			said := name != "nothing" || o.TokenSize != 0 && o.Claim == tokens.OfFiles
			if said && err != nil {
				t.Errorf("%s, %+v: %v", name, o, err)
			} else if !said {
				if !errors.Is(err, tokens.ErrWrongSize) {
					t.Errorf("%s, %+v: got %v, want ErrWrongSize", name, o, err)
				}
				golden.Message(t, fmt.Sprintf("%s, vocabulary %d, size %d, claim %d", name, o.VocabSize, o.TokenSize, o.Claim), err)
			}
		}
	}
}

// TestFoldersSayWhatRunsPresume opens folders by a location that names two bytes or nothing, which
// mean the same to a run. The size in the files next to the tokens counts.
func TestFoldersSayWhatRunsPresume(t *testing.T) {
	for name, size := range formats {
		for _, vocabulary := range []int{128256, 129000, 0} {
			folder := open(t, filepath.Dir(copyFormat(t, name)), Options{SeqLen: 8, TokenSize: 2, VocabSize: vocabulary, Claim: tokens.Presumed})
			if folder.TokenSize() != size {
				t.Errorf("%s is read as tokens of %d bytes", name, folder.TokenSize())
			}
		}
	}
	// A different size in a location is a contradiction. The error names the files in the folder.
	_, err := Open(copyFormat(t, "datatrove-2.ds"), Options{SeqLen: 8, TokenSize: 4, Claim: tokens.OfLocation})
	if !errors.Is(err, tokens.ErrWrongSize) || errors.Is(err, ErrDescribed) || strings.Contains(err.Error(), "data.json") {
		t.Errorf("four bytes named: %v", err)
	}
}

// TestUnknownTokenSizesAreRefused writes tokens of a large vocabulary, and tokens of a small
// vocabulary with more bytes than they need, without a description of their size.
func TestUnknownTokenSizesAreRefused(t *testing.T) {
	var ids []int
	for i := range 200 {
		ids = append(ids, 20+i*37%1000)
	}
	small := func(limit int) (ids []int) {
		for i := range 200 {
			ids = append(ids, i*i%7%limit)
		}
		return ids
	}
	tests := map[string]struct {
		path    string
		options Options
		want    error
	}{
		"small vocabulary":                    {bare(t, 2, ids...), Options{VocabSize: 65536}, nil},
		"large vocabulary":                    {bare(t, 4, ids...), Options{VocabSize: 65537}, tokens.ErrSizeUnknown},
		"large vocabulary, default of a run":  {bare(t, 4, ids...), Options{VocabSize: 128256, TokenSize: 2, Claim: tokens.Presumed}, tokens.ErrSizeUnknown},
		"large vocabulary, two bytes by run":  {bare(t, 2, ids...), Options{VocabSize: 128256, TokenSize: 2, Claim: tokens.Presumed}, tokens.ErrSizeUnknown},
		"small vocabulary, default of a run":  {bare(t, 2, ids...), Options{VocabSize: 65536, TokenSize: 2, Claim: tokens.Presumed}, nil},
		"large vocabulary, said":              {bare(t, 4, ids...), Options{VocabSize: 128256, TokenSize: 4}, nil},
		"large vocabulary, two bytes said":    {bare(t, 2, ids...), Options{VocabSize: 128256, TokenSize: 2}, nil},
		"no vocabulary":                       {bare(t, 2, ids...), Options{}, tokens.ErrSizeUnknown},
		"four bytes of a small vocabulary":    {bare(t, 4, ids...), Options{VocabSize: 2000}, tokens.ErrWrongSize},
		"four bytes, said to be two":          {bare(t, 4, ids...), Options{VocabSize: 128256, TokenSize: 2, Claim: tokens.OfLocation}, tokens.ErrWrongSize},
		"four bytes of four letters":          {bare(t, 4, small(4)...), Options{VocabSize: 2000}, tokens.ErrWrongSize},
		"four bytes of two letters, by run":   {bare(t, 4, small(2)...), Options{VocabSize: 2000, TokenSize: 2, Claim: tokens.Presumed}, tokens.ErrWrongSize},
		"eight bytes of four letters":         {bare(t, 8, small(4)...), Options{VocabSize: 2000}, tokens.ErrWrongSize},
		"two bytes of four letters":           {bare(t, 2, small(4)...), Options{VocabSize: 2000}, nil},
		"eight bytes of a small vocabulary":   {bare(t, 8, ids...), Options{VocabSize: 2000}, tokens.ErrWrongSize},
		"eight bytes, said to be four":        {bare(t, 8, ids...), Options{VocabSize: 2000, TokenSize: 4, Claim: tokens.OfLocation}, tokens.ErrWrongSize},
		"zeros, which look like any size":     {bare(t, 2, make([]int, 200)...), Options{VocabSize: 2000}, nil},
		"ids that are all next to nothing":    {bare(t, 2, make([]int, 200)...), Options{VocabSize: 8}, nil},
		"half a token, where nothing is said": {bare(t, 2, 1, 2, 3), Options{VocabSize: 70000}, tokens.ErrSizeUnknown},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.options.SeqLen = 1
			folder, err := Open(test.path, test.options)
			if err == nil {
				err = folder.Close()
			}
			if !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if err == nil {
				return
			}
			remedies := []string{test.path, "--token-size", "token_size_in_bytes"}
			if test.options.Claim == tokens.Presumed { // of a run: a flag has no effect there
				remedies = []string{test.path, "token_size_in_bytes", "bare.bin.metadata"}
			}
			for _, want := range remedies {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
			}
		})
	}
}
