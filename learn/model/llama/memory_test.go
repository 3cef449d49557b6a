package llama_test

import (
	"flag"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

var memorySteps = flag.Int("memory-steps", 300, "steps of TestResidentMemoryIsFlat; 2000 for the long run")

// TestResidentMemoryIsFlat checks that the process grows by at most a hundredth between step 100
// and the last step, and that no tensor remains.
func TestResidentMemoryIsFlat(t *testing.T) {
	e := torchtest.Engine(t)
	v := readVectors(t, "long")
	m := newModel(t, e, v)
	ids, targets := v.Other["ids"], v.Other["targets"]
	var resident, live int64
	for step := range *memorySteps {
		torchtest.Do(t, e, true, func(s *torch.Scope) error {
			m.Loss(s, s.FromBytes(ids.Data, torch.I64, ids.Shape...), s.FromBytes(targets.Data, torch.I64, targets.Shape...)).Backward()
			for _, p := range m.Parameters() {
				p.Tensor.ClearGrad()
			}
			return nil
		})
		if step == 100 {
			resident, live = residentKiB(t), torch.LiveTensors()
		}
	}
	if now := torch.LiveTensors(); now != live {
		t.Errorf("%d tensors live after %d steps, %d after 100", now, *memorySteps, live)
	}
	now := residentKiB(t)
	t.Logf("resident: %d KiB after 100 steps, %d after %d", resident, now, *memorySteps)
	if float64(now) > 1.01*float64(resident) {
		t.Errorf("resident memory grew from %d to %d KiB", resident, now)
	}
}

func residentKiB(t *testing.T) int64 {
	t.Helper()
	debug.FreeOSMemory() // the size of Go's garbage varies by megabytes
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Skip("no VmRSS")
	return 0
}
