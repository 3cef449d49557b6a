package golden

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// messagesFile holds the messages of all tests of a package, relative to testdata.
const messagesFile = "messages.txt"

var (
	messagesLock sync.Mutex
	// rewritten holds the tests whose messages -update has removed from the file, so that stale
	// messages disappear.
	rewritten = map[string]bool{}
	// varying matches addresses whose port differs between runs. folder matches the folders of
	// t.TempDir.
	varying = regexp.MustCompile(`127\.0\.0\.1:\d+|\[::1\]:\d+`)
	folder  = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(regexp.QuoteMeta(filepath.Clean(os.TempDir())) + `/Test[^/\s"':]*/\d{3}`)
	})
)

// Message compares the whole message of err with the entry of test t and name in testdata/messages.txt.
// The file has one entry per message: a line with the name of the test and name in brackets, then the
// lines of the message, each after a tab. TMP stands for a folder from t.TempDir, and PORT for a port
// of the loopback address. hide lists other text that differs between runs, in pairs of text and
// replacement as in [strings.NewReplacer]. A nil error fails the test. With -update, Message writes the
// entry.
func Message(t testing.TB, name string, err error, hide ...string) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want the message in testdata/%s", name, messagesFile)
		return
	}
	got := strings.NewReplacer(hide...).Replace(err.Error())
	got = folder().ReplaceAllString(got, "TMP")
	got = varying.ReplaceAllStringFunc(got, func(s string) string { return s[:strings.LastIndexByte(s, ':')] + ":PORT" })
	messagesLock.Lock()
	defer messagesLock.Unlock()
	key := fmt.Sprintf("%s [%s]", t.Name(), oneLine(name))
	entries, readErr := readMessages()
	if *update {
		if root, _, _ := strings.Cut(t.Name(), "/"); !rewritten[root] {
			rewritten[root] = true
			for old := range entries {
				if test, _, _ := strings.Cut(old, " ["); test == root || strings.HasPrefix(test, root+"/") {
					delete(entries, old)
				}
			}
		}
		entries[key] = got
		readErr = writeMessages(entries)
	}
	if readErr != nil {
		t.Fatal(readErr)
	}
	want, found := entries[key]
	if !found {
		t.Errorf("%s is not in testdata/%s; write it with -update: %s", key, messagesFile, got)
	} else if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: the message differs (-want +got):\n%s", key, diff)
	}
}

// oneLine returns s without line breaks and other unprintable characters, at most 80 bytes of it.
func oneLine(s string) string {
	s = strings.Trim(fmt.Sprintf("%q", s), `"`)
	return s[:min(len(s), 80)]
}

// readMessages returns the entries of the file, none if it does not exist.
func readMessages() (map[string]string, error) {
	entries := map[string]string{}
	raw, err := os.ReadFile(filepath.Join("testdata", messagesFile))
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	key := ""
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSuffix(line, "\n")
		text, indented := strings.CutPrefix(line, "\t")
		switch {
		case !indented:
			key = line
		case entries[key] == "":
			entries[key] = text
		default:
			entries[key] += "\n" + text
		}
	}
	return entries, nil
}

// writeMessages writes the entries in the order of their keys.
func writeMessages(entries map[string]string) error {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		fmt.Fprintf(&b, "%s\n\t%s\n", key, strings.ReplaceAll(entries[key], "\n", "\n\t"))
	}
	if err := os.MkdirAll("testdata", 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join("testdata", messagesFile), []byte(b.String()), 0o644)
}
