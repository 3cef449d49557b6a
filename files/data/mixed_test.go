package data

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/preprocessed"
	"github.com/psyche-go/psyche/record/config"
)

// mixture serves two files and a mix of them.
func mixture(t *testing.T, providers string) config.DataLocation {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "web.ds"), 1000, 41)
	write(t, filepath.Join(dir, "code.ds"), 2000, 21)
	base := serve(t, http.FileServer(http.Dir(dir)))
	source := func(name string) string {
		return fmt.Sprintf(`{"location": {"SingleUrl": "%s/%s.ds"}, "token_size_in_bytes": "TwoBytes", "shuffle": "DontShuffle"}`, base, name)
	}
	text := fmt.Sprintf(`{"shuffle": "DontShuffle", "providers": [`+providers+`]}`, source("web"), source("code"))
	if err := os.WriteFile(filepath.Join(dir, "mix.json"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return config.DataLocation{WeightedHTTP: &config.WeightedHTTPData{URL: base + "/mix.json?token=secret"}}
}

func firsts(sequences [][]int32) (first []int32) {
	for _, sequence := range sequences {
		first = append(first, sequence[0])
	}
	return first
}

func TestAMixtureFromTheWeb(t *testing.T) {
	for providers, want := range map[string][]int32{
		"[%s, 0.75], [%s, 0.25]": {1000, 1004, 2000, 1008, 1012, 1016, 2004, 1020},
		"[%s, 1], [%s, 1.0]":     {1000, 2000, 1004, 2004, 1008, 2008, 1012, 2012},
		"%s, %s":                 {1000, 2000, 1004, 1008, 2004, 1012, 1016, 2008}, // ten sequences and five
	} {
		p := open4(t, Options{}, mixture(t, providers))
		if p.Len() != 15 {
			t.Errorf("%s: %d sequences", providers, p.Len())
		}
		got := firsts(read(t, p, 0, 8))
		var single []int32
		for i := range uint64(8) { // read ahead
			single = append(single, firsts(read(t, p, i, i+1))...)
		}
		if cmp.Diff(want, got) != "" || cmp.Diff(got, single) != "" {
			t.Errorf("%s: got %v, and one by one %v, want %v", providers, got, single, want)
		}
	}
}

func TestMixturesThatCannotBeRead(t *testing.T) {
	for name, providers := range map[string]string{
		"weight of 0":    "[%s, 0], [%s, 1]",
		"missing weight": "%s, [%s, 1]",
		"damaged JSON":   `{"location": %s%s`,
	} {
		_, err := New(context.Background(), []config.DataLocation{mixture(t, providers)}, Options{SeqLen: 4, Web: quick})
		golden.Message(t, name, err)
	}
	location := mixture(t, "%s, %s")
	location.WeightedHTTP.URL = strings.Replace(location.WeightedHTTP.URL, "mix.json", "none.json", 1)
	_, err := New(context.Background(), []config.DataLocation{location}, Options{SeqLen: 4, Web: quick})
	golden.Message(t, "missing file", err)
}

type samplesRow struct {
	Inputs []int32 `parquet:"inputs,list"`
	Labels []int32 `parquet:"labels,list"`
}

func TestReadyMadeSamples(t *testing.T) {
	dir := t.TempDir()
	rows := []samplesRow{{[]int32{1, 2}, []int32{IgnoreLabel, 2}}, {[]int32{3, 4, 5}, []int32{IgnoreLabel, 4, 5}}}
	if err := parquet.WriteFile(filepath.Join(dir, "a.parquet"), rows); err != nil {
		t.Fatal(err)
	}
	location := config.DataLocation{Preprocessed: &config.PreprocessedData{Path: dir}}
	id := assign.BatchID{Start: 1, End: 3} // on into the second pass
	want := Batch{ID: id, Sequences: [][]int32{rows[1].Inputs, rows[0].Inputs}, Labels: [][]int32{rows[1].Labels, rows[0].Labels}}
	for name, p := range map[string]*fallback{
		"location": open4(t, Options{}, location),
		"path":     open4(t, Options{Path: dir}, config.DataLocation{Preprocessed: &config.PreprocessedData{Path: "elsewhere"}}),
	} {
		got, err := p.Batch(context.Background(), id)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
	}
	// Only some of the files have labels.
	if err := parquet.WriteFile(filepath.Join(dir, "b.parquet"), []struct {
		Inputs []int32 `parquet:"inputs,list"`
	}{{[]int32{6, 7}}}); err != nil {
		t.Fatal(err)
	}
	p := open4(t, Options{}, location)
	_, err := p.Batch(context.Background(), assign.BatchID{Start: 1, End: 3})
	if !errors.Is(err, preprocessed.ErrInvalid) || !IsPermanent(err) {
		t.Errorf("got %v, want a permanent ErrInvalid", err)
	}
	golden.Message(t, "labels in one file", err)
}

// short is a provider that returns less than requested.
type short struct{ Provider }

func (short) Len() uint64  { return 10 }
func (short) Close() error { return nil }
func (short) Batch(_ context.Context, id assign.BatchID) (Batch, error) {
	return Batch{ID: id, Sequences: [][]int32{}}, nil
}

func TestAProviderThatDeliversTooLittle(t *testing.T) {
	o := Options{Server: func(context.Context, config.ServerData, Options) (Provider, error) { return short{}, nil }}
	server := config.DataLocation{Server: &config.ServerData{Addr: "127.0.0.1:1"}}
	p := open4(t, o, server, server) // with two locations, batches are cached
	_, err := p.Batch(context.Background(), assign.BatchID{End: 1})
	golden.Message(t, "no sequences", err)
}

// TestLocationsAreDescribedWithoutSecrets checks that descriptions contain no secrets, because they
// are logged and displayed.
func TestLocationsAreDescribedWithoutSecrets(t *testing.T) {
	address := "https://me:hidden@data.example/{}.ds?token=hidden"
	for want, location := range map[string]config.HTTPLocation{
		"Http https://me:xxxxx@data.example/%7B%7D.ds": {SingleURL: &address},
		"Http https://me:xxxxx@data.example/007.ds":    {NumberedFiles: &config.NumberedFiles{URLTemplate: address, StartIndex: 7, NLeftPadZeros: 3, NumFiles: 2}},
	} {
		if got := describe(config.DataLocation{HTTP: &config.HTTPData{Location: location}}); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
