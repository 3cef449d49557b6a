package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOrderOfAMixture checks the example of docs/data.md, with 7 and 3 shares and the seed 7.
func TestOrderOfAMixture(t *testing.T) {
	dir := t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	var providers []string
	for name, weight := range map[string]string{"a": "0.7", "b": "0.3"} {
		if err := os.WriteFile(filepath.Join(dir, name+".ds"), make([]byte, 2*(10*4+1)), 0o644); err != nil {
			t.Fatal(err)
		}
		providers = append(providers, fmt.Sprintf(`[{"location": {"SingleUrl": "%s/%s.ds"}, "token_size_in_bytes": "TwoBytes", "shuffle": "DontShuffle"}, %s]`, server.URL, name, weight))
	}
	if strings.Contains(providers[0], "b.ds") {
		providers[0], providers[1] = providers[1], providers[0]
	}
	mix := fmt.Sprintf(`{"shuffle": {"Seeded": [7%s]}, "providers": [%s]}`, strings.Repeat(", 0", 31), strings.Join(providers, ", "))
	if err := os.WriteFile(filepath.Join(dir, "mix.json"), []byte(mix), 0o644); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	line := []string{"data", "inspect", server.URL + "/mix.json", "--seq-len", "4", "--order", "10", "--allow-inner-data"}
	if code := run(t.Context(), line, console{&out, &errs}); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &errs)
	}
	var got []string
	for at := range strings.SplitSeq(strings.TrimSpace(out.String()), "\n") {
		columns := strings.Split(at, "\t")
		got = append(got, columns[1]+"/"+columns[3])
	}
	if want := "source/sequence 1/0 0/2 0/1 0/4 0/0 1/2 0/5 0/3 0/6 1/1"; strings.Join(got, " ") != want {
		t.Errorf("%s, want %s", got, want)
	}
	if code := run(t.Context(), line[:7], console{&out, &errs}); code == exitOK {
		t.Error("a private address was read without --allow-inner-data")
	}
}
