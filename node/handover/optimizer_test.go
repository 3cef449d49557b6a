package handover

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// TestLossOfTheOptimizerIsSaid: a client that trained before, and comes back, says what becomes of its optimizer.
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
		first  bool // no process trained before
		want   string
		fresh  bool
	}{
		"it is there":                       {before: []func(*rig){of(lastStep)}, want: "level=INFO msg=\"optimizer state restored\"", fresh: false},
		"killed before it was written":      {before: nil, want: "level=INFO msg=\"optimizer reset\" step=0 because=\"no state of it was saved with this model\"", fresh: true},
		"an older one":                      {before: []func(*rig){of(lastStep - 1)}, want: "because=\"no state of it was saved with this model\"", fresh: true},
		"torn":                              {before: []func(*rig){of(lastStep), torn}, want: "level=WARN msg=\"optimizer reset: its saved state cannot be used\"", fresh: true},
		"in a run with audits":              {before: []func(*rig){of(lastStep), func(c *rig) { c.request.Definition.Audited = true }}, want: "because=\"in a run with audits its state is not kept for a restart\"", fresh: true},
		"a client that has not trained yet": {first: true, want: "", fresh: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newRig(t)
			var log bytes.Buffer
			c.options.Log = slog.New(slog.NewTextHandler(&log, nil))
			c.onDisk(c.after, digestOf(c.after))
			for _, prepare := range test.before {
				prepare(c)
			}
			if !test.first {
				c.must(c.options.Folder.NoteSigned([32]byte{}, 1))
			}
			a, err := c.obtain()
			c.must(err)
			want := strings.Replace(test.want, "step=0", fmt.Sprintf("step=%d", lastStep), 1)
			if said := log.String(); !strings.Contains(said, want) || test.want == "" && strings.Contains(said, "optimizer") {
				t.Errorf("reported %q, want %q", said, want)
			}
			if a.Model.Fresh != test.fresh {
				t.Errorf("fresh: %v, want %v", a.Model.Fresh, test.fresh)
			}
		})
	}
}
