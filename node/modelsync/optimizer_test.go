package modelsync

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

// TestLossOfTheOptimizerIsSaid checks that a client that has trained before and comes back logs
// what happens to its optimizer.
func TestLossOfTheOptimizerIsSaid(t *testing.T) {
	of := func(step uint32) func(c *rig) {
		return func(c *rig) {
			write := func(path string) error { return os.WriteFile(path, make([]byte, 8), 0o600) }
			c.must(c.options.Folder.SaveOptimizer(write, step, digestOf(c.after)))
		}
	}
	torn := func(c *rig) {
		c.must(os.Truncate(c.options.Folder.Optimizer(lastStep, digestOf(c.after)), 5))
	}
	for name, test := range map[string]struct {
		before []func(c *rig)
		first  bool // no earlier process has trained
		fresh  bool
	}{
		"it is there":                       {before: []func(*rig){of(lastStep)}, fresh: false},
		"killed before it was written":      {fresh: true},
		"an older one":                      {before: []func(*rig){of(lastStep - 1)}, fresh: true},
		"torn":                              {before: []func(*rig){of(lastStep), torn}, fresh: true},
		"in a run with audits":              {before: []func(*rig){of(lastStep), func(c *rig) { c.request.Definition.Audited = true }}, fresh: true},
		"a client that has not trained yet": {first: true, fresh: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newRig(t)
			var log bytes.Buffer
			c.options.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
			c.onDisk(c.after, digestOf(c.after))
			for _, prepare := range test.before {
				prepare(c)
			}
			if !test.first {
				c.must(c.options.Folder.NoteSigned([32]byte{}, 1))
			}
			a, err := c.obtain()
			c.must(err)
			if test.first != (log.Len() == 0) {
				t.Errorf("reported %q", log.String())
			} else if !test.first {
				golden.Message(t, "log", errors.New(strings.TrimSpace(log.String())))
			}
			if a.Model.Fresh != test.fresh {
				t.Errorf("fresh: %v, want %v", a.Model.Fresh, test.fresh)
			}
		})
	}
}

// withoutTime removes the time from a log line.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
