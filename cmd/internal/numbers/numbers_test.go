package numbers

import (
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/psyche-go/psyche/base/golden"
)

type flags struct {
	Count   uint32
	Maybe   *uint16
	Signed  int
	Share   float64
	Timeout time.Duration
	Name    string
	Switch  bool
	Small   bool `short:"s"`
}

func parse(t *testing.T, args ...string) (flags, error) {
	t.Helper()
	var into flags
	parser, err := kong.New(&into, Option())
	if err != nil {
		t.Fatal(err)
	}
	_, err = parser.Parse(args)
	return into, err
}

func TestNumbers(t *testing.T) {
	got, err := parse(t, "--count", "3", "--maybe=4", "--signed", "-5", "--share", "-.5", "--timeout", "-1s", "--name", "n", "--switch", "-s")
	if err != nil || got.Count != 3 || got.Maybe == nil || *got.Maybe != 4 || got.Signed != -5 || got.Share != -.5 ||
		got.Timeout != -time.Second || got.Name != "n" || !got.Switch || !got.Small {
		t.Errorf("parsed %+v, %v", got, err)
	}
	if got, err := parse(t, "--signed=-0x10", "--count", "0x10"); err != nil || got.Signed != -16 || got.Count != 16 {
		t.Errorf("parsed %+v, %v", got, err)
	}
}

func TestErrorsNameTheExpectedFormat(t *testing.T) {
	for _, args := range []string{
		"--count -1",
		"--count=-1",
		"--count 4294967296",
		"--maybe -1",
		"--signed much",
		"--signed -1.5",
		"--share -1x",
		"--timeout -5",
		"--count --signed 1",
		"--count",
		"--name -1",
		"--signed -s --count 1",
	} {
		_, err := parse(t, strings.Fields(args)...)
		golden.Message(t, args, err)
	}
}
