//go:build !cgo || !linux

package cuda

import (
	"errors"
	"testing"
)

func TestThisBuildHasNoDevices(t *testing.T) {
	if device, err := Open(0); !errors.Is(err, ErrNoCUDA) || device != nil {
		t.Errorf("device %v, error %v", device, err)
	}
}
