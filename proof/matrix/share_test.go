package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/proof/testbed"
)

// share is the part of the matrix that runs with all tests: few rows with many features in each.
var share = []string{
	"audits=30,clip=off",
	"data=server,checkpoint=hub,results=values,audits=30,witnesses=few,admission=keys,uploads=bucket,trackers=files,device=strict,kills=client,late=joins,rounds=long",
	"backend=chain,data=http,results=dummy,lag=2,admission=delegates,uploads=hub,trackers=otlp,slow=stopped,rounds=long,audits=30,shares=speeds,returns=on",
}

// TestShare runs the share and checks that there are no findings.
func TestShare(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: starts real processes")
	}
	dir := t.TempDir()
	programs, err := testbed.Build(t.Context(), filepath.Join("..", ".."), dir)
	if err != nil {
		t.Fatal(err)
	}
	if programs.NoTorch != "" {
		if os.Getenv("PSYCHE_REQUIRE_TORCH") == "1" {
			t.Fatal(programs.NoTorch)
		}
		t.Skip(programs.NoTorch)
	}
	o := options{brief: true, setup: setup{
		root: filepath.Join("..", ".."), bin: dir, shim: programs.Shim, out: filepath.Join(dir, "matrix"), evaluations: filepath.Join("..", "..", "learn", "eval", "testdata", "data"),
	}}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := o.prepareModel(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, levels := range share {
		t.Run(levels, func(t *testing.T) {
			t.Parallel()
			o := o
			o.row = levels
			var out bytes.Buffer
			if err := o.do(t.Context(), &out); errors.Is(err, context.Canceled) {
				t.Skip("the tests were ended")
			} else if err != nil {
				t.Errorf("%v\n%s", err, out.String())
			}
			t.Log(out.String())
		})
	}
}
