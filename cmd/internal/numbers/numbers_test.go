package numbers

import (
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
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

func TestErrorsSayWhatIsWanted(t *testing.T) {
	for args, want := range map[string]string{
		"--count -1":            `--count: want a whole number from 0 to 4294967295, not "-1"`,
		"--count=-1":            `--count: want a whole number from 0 to 4294967295, not "-1"`,
		"--count 4294967296":    `--count: want a whole number from 0 to 4294967295, not "4294967296"`,
		"--maybe -1":            `--maybe: want a whole number from 0 to 65535, not "-1"`,
		"--signed much":         `--signed: want a whole number, not "much"`,
		"--signed -1.5":         `--signed: want a whole number, not "-1.5"`,
		"--share -1x":           `--share: want a number, not "-1x"`,
		"--timeout -5":          `--timeout: want a duration such as 30s or 5m, not "-5"`,
		"--count --signed 1":    `--count`,
		"--count":               `--count`,
		"--name -1":             `--name`,
		"--signed -s --count 1": `--signed`,
	} {
		if _, err := parse(t, strings.Fields(args)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", args, err, want)
		}
	}
}
