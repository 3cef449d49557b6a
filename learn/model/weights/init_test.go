package weights_test

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/psyche-go/psyche/learn/model/weights"
)

// TestNormalIsNormal checks that the moments and tails of many numbers match a standard normal
// distribution.
func TestNormalIsNormal(t *testing.T) {
	const n = 200_000
	drawn := weights.Normal(7, "x", 1, n)
	var moments [4]float64
	var beyond2 float64
	for i := range n {
		v := float64(math.Float32frombits(binary.LittleEndian.Uint32(drawn.Data[4*i:])))
		power := 1.0
		for k := range moments {
			power *= v
			moments[k] += power / n
		}
		if math.Abs(v) > 2 {
			beyond2 += 1.0 / n
		}
	}
	// The fourth moment of a sum of twelve uniform numbers is 2.9, not 3.
	for k, want := range []float64{0, 1, 0, 2.9} {
		if math.Abs(moments[k]-want) > 0.04 {
			t.Errorf("moment %d is %v, want %v", k+1, moments[k], want)
		}
	}
	if math.Abs(beyond2-0.0455) > 0.003 {
		t.Errorf("a share of %v lies beyond two deviations, want 0.0455", beyond2)
	}
}
