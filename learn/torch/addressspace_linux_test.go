package torch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestEnoughSpace(t *testing.T) {
	const used, libraries = 1 << 30, 2 << 30
	if err := enoughSpace(used+libraries+threadSpace, used, libraries); err != nil {
		t.Error(err)
	}
	err := enoughSpace(used+libraries+threadSpace-1<<10, used, libraries)
	if want := fmt.Sprintf("limited to %d KiB, and libtorch and its threads need about %d KiB; run: ulimit -v unlimited", 3<<20+512<<10-1, 3<<20+512<<10); !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestLoadUnderALimit checks that each limit of the address space either lets libtorch load, or is
// refused with numbers. No process aborts or hangs. A limit that is just large enough can still be
// refused, because threads reserve address space while the libraries load.
func TestLoadUnderALimit(t *testing.T) {
	if os.Getenv("PSYCHE_LIMITED_LOAD") != "" {
		if err := Load(Options{}); err != nil {
			fmt.Println("refused:", err)
		}
		return
	}
	shim, err := findShim("")
	if err != nil {
		t.Skip(err)
	}
	need := (loadedSize(shim) + threadSpace) >> 10
	if need < threadSpace>>10+100_000 {
		t.Errorf("the libraries of %s take %d KiB", shim, need-threadSpace>>10)
	}
	for _, limit := range []uint64{2_110_000, 2_200_000, 2_300_000, 2_500_000, 2_700_000, 2_800_000} {
		command := exec.Command("sh", "-c", `ulimit -v "$1" && exec timeout 60 "$2" -test.run=TestLoadUnderALimit`, "sh", fmt.Sprint(limit), os.Args[0])
		command.Env = append(os.Environ(), "PSYCHE_LIMITED_LOAD=1")
		out, err := command.CombinedOutput()
		refused := strings.Contains(string(out), "refused: torch: libtorch is not available") && strings.Contains(string(out), fmt.Sprintf("the address space is limited to %d KiB", limit))
		if err != nil || !refused && strings.Contains(string(out), "refused:") || !refused && limit < need {
			t.Errorf("limit %d: %v: %s", limit, err, out)
		}
	}
}
