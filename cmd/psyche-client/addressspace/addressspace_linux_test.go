//go:build cgo

package addressspace

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

func TestTooSmallLimit(t *testing.T) {
	for _, limit := range []int{100_000, 1_000_000, 1_500_000, need - 1} {
		_, stderr, code := limited(t, limit)
		if code != 1 || !bytes.Contains(stderr, []byte(fmt.Sprint(limit))) || !bytes.Contains(stderr, []byte(fmt.Sprint(need))) || bytes.Count(stderr, []byte("\n")) != 1 {
			t.Errorf("limit %d: exit code %d, %s", limit, code, stderr)
		}
	}
}

func TestLargeLimit(t *testing.T) {
	if stdout, stderr, code := limited(t, 8_000_000); code != 0 || !bytes.Contains(stdout, []byte("PASS")) {
		t.Errorf("exit code %d, %s%s", code, stdout, stderr)
	}
}

// limited runs this program without tests, with a limit of its address space in KiB.
func limited(t *testing.T, limit int) (stdout, stderr []byte, code int) {
	t.Helper()
	command := exec.Command("sh", "-c", `ulimit -v "$1" && exec "$2" -test.run=NoTest`, "sh", fmt.Sprint(limit), os.Args[0])
	var out, errs bytes.Buffer
	command.Stdout, command.Stderr = &out, &errs
	err := command.Run()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		code = failed.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), errs.Bytes(), code
}
