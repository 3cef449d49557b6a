package main

import (
	"cmp"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const vocabulary = 2048

// text is sequences of words.
type text struct{ training, heldOut [][]int32 }

var words = regexp.MustCompile(`\w+|[^\w\s]`)

// readText reads packages of Go's source tree. One of twenty files is held out.
func readText(seed uint64, length int) (*text, error) {
	var files [][]string
	counts := map[string]int{}
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("find Go's sources: %w", err)
	}
	root := filepath.Join(strings.TrimSpace(string(out)), "src")
	for _, part := range []string{"net", "go", "encoding", "os", "database", "html", "image"} {
		err := filepath.WalkDir(filepath.Join(root, part), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.Contains(path, "testdata") {
				return err
			}
			b, err := os.ReadFile(path)
			found := words.FindAllString(string(b), -1)
			for _, word := range found {
				counts[word]++
			}
			files = append(files, found)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("read Go's sources: %w", err)
		}
	}
	ids := number(counts)
	t := &text{}
	for i, file := range files {
		into := &t.training
		if i%20 == 0 {
			into = &t.heldOut
		}
		for ; len(file) > length; file = file[length:] {
			sequence := make([]int32, length+1)
			for j, word := range file[:length+1] {
				sequence[j] = ids[word] // 0: any rarer word
			}
			*into = append(*into, sequence)
		}
	}
	shuffle := func(seed uint64, s [][]int32) {
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] })
	}
	shuffle(seed, t.training)
	shuffle(0, t.heldOut)
	t.heldOut = t.heldOut[:min(len(t.heldOut), 400)]
	return t, nil
}

// number assigns the most frequent words the numbers from 1 on.
func number(counts map[string]int) map[string]int32 {
	all := make([]string, 0, len(counts))
	for word := range counts {
		all = append(all, word)
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(counts[b]-counts[a], strings.Compare(a, b)) })
	ids := map[string]int32{}
	for i, word := range all[:min(len(all), vocabulary-1)] {
		ids[word] = int32(i) + 1
	}
	return ids
}
