package hashchain

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// TestEveryValueOpensTheOneBefore opens chains of many lengths value by value, down to their
// secrets.
func TestEveryValueOpensTheOneBefore(t *testing.T) {
	secret := [32]byte{1, 2, 3}
	for _, links := range []int{1, 2, 3, 4, 9, 10, 99, 100, 101, 1 << 12} {
		t.Run(fmt.Sprint(links), func(t *testing.T) {
			c := New(secret, links)
			value := c.Commitment()
			for left := links - 1; left >= 0; left-- {
				opening, n, ok := c.Opening(value)
				if again, _, _ := c.Opening(value); !ok || n != left || again != opening || sha256.Sum256(opening[:]) != value {
					t.Fatalf("%x has opening %x, %d left (%t), want %d left", value, opening, n, ok, left)
				}
				value = opening
			}
			if value != secret {
				t.Errorf("the last value is %x, not the secret", value)
			}
			if _, _, ok := c.Opening(value); ok {
				t.Error("the secret has an opening")
			}
		})
	}
}

// TestPlaceIsFound checks that a new chain of the same secret finds any value.
func TestPlaceIsFound(t *testing.T) {
	const links = 1000
	secret := [32]byte{9}
	whole := New(secret, links)
	values := [][32]byte{whole.Commitment()}
	for range links {
		next, _, _ := whole.Opening(values[len(values)-1])
		values = append(values, next)
	}
	again := New(secret, links)
	for _, i := range []int{700, 3, 999, 0, 31, 32, 33, 500} {
		if opening, left, ok := again.Opening(values[i]); !ok || opening != values[i+1] || left != links-1-i {
			t.Errorf("value %d: opening %x, %d left (%t)", i, opening, left, ok)
		}
	}
	if _, _, ok := again.Opening([32]byte{8}); ok {
		t.Error("a value outside the chain has an opening")
	}
	if again.Commitment() != values[0] {
		t.Error("the commitment has changed")
	}
}

func BenchmarkNew(b *testing.B) {
	for b.Loop() {
		New([32]byte{1}, 1<<20)
	}
}

func BenchmarkOpening(b *testing.B) {
	c := New([32]byte{1}, 1<<20)
	value := c.Commitment()
	for b.Loop() {
		opening, _, ok := c.Opening(value)
		if !ok {
			opening = c.Commitment()
		}
		value = opening
	}
}
