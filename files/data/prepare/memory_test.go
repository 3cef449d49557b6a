package prepare

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/files/tokenizer"
)

// TestOneLargeTextNeedsLittleMoreMemory measures the maximum heap during the encoding of a text
// whose ids need four times its size.
func TestOneLargeTextNeedsLittleMoreMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 96 MB of tokens")
	}
	dir, size := t.TempDir(), uint64(48<<20)
	line := strings.Repeat("sixteen letters ", 4)
	input := filepath.Join(dir, "large.txt")
	if err := os.WriteFile(input, []byte(strings.Repeat(line, int(size)/len(line))), 0o600); err != nil {
		t.Fatal(err)
	}
	defer debug.SetGCPercent(debug.SetGCPercent(20))
	runtime.GC()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	stop, maximum := make(chan struct{}), make(chan uint64)
	go func() {
		peak := uint64(0)
		for ticks := time.Tick(2 * time.Millisecond); ; {
			select {
			case <-ticks:
				runtime.ReadMemStats(&now)
				peak = max(peak, now.HeapAlloc)
			case <-stop:
				maximum <- peak
				return
			}
		}
	}()
	made, err := Run(context.Background(), Options{Paths: []string{input}, Output: filepath.Join(dir, "out"), Tokenizer: tokenizer.Bytes(), TokenizerName: "bytes", Workers: 2})
	close(stop)
	peak := <-maximum
	if err != nil || made.Tokens != size {
		t.Fatalf("%d tokens, %v", made.Tokens, err)
	}
	// The text, the parts that wait for the writer, and garbage.
	limit := before.HeapAlloc + size + 4*(aheadParts+8)*2*partIDs
	t.Logf("the heap had %d bytes more at most, with %d of text", peak-before.HeapAlloc, size)
	if peak > limit {
		t.Errorf("the heap had %d bytes, want at most %d", peak, limit)
	}
}

// TestPartsOfLaterTexts has texts with more parts than may wait for the writer.
func TestPartsOfLaterTexts(t *testing.T) {
	dir := t.TempDir()
	input := map[string]string{}
	for _, name := range []string{"in/a.txt", "in/b.txt", "in/c.txt", "in/d.txt"} {
		input[name] = strings.Repeat(name, (aheadParts+8)*partIDs/len(name)/2)
	}
	tree(t, dir, input)
	made, err := Run(context.Background(), Options{Paths: []string{filepath.Join(dir, "in")}, Output: filepath.Join(dir, "out"), Tokenizer: tokenizer.Bytes(), TokenizerName: "bytes", Workers: 4})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, file := range made.Files {
		got += text(t, filepath.Join(dir, "out", file.Name))
	}
	if want := input["in/a.txt"] + input["in/b.txt"] + input["in/c.txt"] + input["in/d.txt"]; got != want {
		t.Errorf("%d bytes, want %d of the texts in their order", len(got), len(want))
	}
}
