package scenario

import (
	"errors"
	"testing"
)

func TestFaultsText(t *testing.T) {
	for _, f := range []Faults{NoFaults, AllFaults, HonestFaults, Drop, Drop | TornWrite | FalseAccuser} {
		if got, err := ParseFaults(f.String()); err != nil || got != f {
			t.Errorf("%v: got %v, %v", f, got, err)
		}
	}
	if _, err := ParseFaults("drop,meteor"); !errors.Is(err, errUnknownFault) {
		t.Errorf("got %v; want error errUnknownFault", err)
	}
}
