package weighted

import (
	"cmp"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
)

// maxCycle is the length of the longest cycle.
const maxCycle = 1 << 16

// maxSources is the maximum number of sources.
const maxSources = 256

// errWeights means that weights are invalid.
var errWeights = errors.New("invalid weights")

// Shares converts weights, decimal numbers such as "0.7" or "3", to integer shares. If the weights
// are in the ratio of integers with a sum of at most maxCycle, the shares have exactly that ratio.
// Other weights are rounded to maxCycle shares by largest remainders, and each to at least one.
func Shares(weights []string) ([]uint32, error) {
	if len(weights) == 0 || len(weights) > maxSources {
		return nil, fmt.Errorf("%w: %d sources, want 1 to %d", errWeights, len(weights), maxSources)
	}
	exact := make([]*big.Rat, len(weights))
	sum := new(big.Rat)
	for i, weight := range weights {
		// A large exponent would take memory in proportion to its value.
		if value, ok := parse(weight); ok {
			exact[i] = value
			sum.Add(sum, value)
			continue
		}
		return nil, fmt.Errorf("%w: weight %d is %.20q, want a number more than 0, from 1e-15 to 1e15", errWeights, i, weight)
	}
	return round(exact, sum), nil
}

// parse parses a decimal number.
func parse(text string) (*big.Rat, bool) {
	approximate, err := strconv.ParseFloat(text, 64)
	if err != nil || len(text) > 64 || !(approximate >= 1e-15 && approximate <= 1e15) {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

// SharesOf converts lengths of sources to shares.
func SharesOf(lengths []uint64) ([]uint32, error) {
	exact := make([]*big.Rat, len(lengths))
	sum := new(big.Rat)
	for i, length := range lengths {
		if length == 0 {
			return nil, fmt.Errorf("%w: source %d is empty", errWeights, i)
		}
		exact[i] = new(big.Rat).SetInt(new(big.Int).SetUint64(length))
		sum.Add(sum, exact[i])
	}
	if len(lengths) == 0 || len(lengths) > maxSources {
		return nil, fmt.Errorf("%w: %d sources, want 1 to %d", errWeights, len(lengths), maxSources)
	}
	return round(exact, sum), nil
}

// round converts positive weights with a known sum to shares.
func round(weights []*big.Rat, sum *big.Rat) []uint32 {
	if whole, ok := wholeNumbers(weights); ok {
		return whole
	}
	type remainder struct {
		source int
		part   *big.Rat
	}
	shares := make([]uint32, len(weights))
	var remainders []remainder
	left := maxCycle
	for i, weight := range weights {
		ideal := new(big.Rat).Quo(new(big.Rat).Mul(weight, big.NewRat(maxCycle, 1)), sum)
		floor := new(big.Int).Quo(ideal.Num(), ideal.Denom())
		shares[i] = max(uint32(floor.Uint64()), 1)
		left -= int(shares[i])
		if floor.Sign() > 0 { // the others got more than their exact share
			remainders = append(remainders, remainder{i, ideal.Sub(ideal, new(big.Rat).SetInt(floor))})
		}
	}
	slices.SortStableFunc(remainders, func(a, b remainder) int {
		return cmp.Or(b.part.Cmp(a.part), cmp.Compare(a.source, b.source))
	})
	for i := 0; left > 0; i, left = i+1, left-1 {
		shares[remainders[i].source]++
	}
	for ; left < 0; left++ { // small shares were rounded up to one: the largest share pays
		largest := 0
		for i, share := range shares {
			if share > shares[largest] {
				largest = i
			}
		}
		shares[largest]--
	}
	return shares
}

// wholeNumbers returns the smallest integers in the same ratio, unless their sum is larger than a
// cycle.
func wholeNumbers(weights []*big.Rat) ([]uint32, bool) {
	denominator, divisor := big.NewInt(1), new(big.Int)
	for _, weight := range weights {
		gcd := new(big.Int).GCD(nil, nil, denominator, weight.Denom())
		denominator.Mul(denominator, new(big.Int).Quo(weight.Denom(), gcd))
	}
	numbers := make([]*big.Int, len(weights))
	for i, weight := range weights {
		numbers[i] = new(big.Int).Quo(new(big.Int).Mul(weight.Num(), denominator), weight.Denom())
		divisor.GCD(nil, nil, divisor, numbers[i])
	}
	shares := make([]uint32, len(weights))
	sum := uint64(0)
	for i, number := range numbers {
		number.Quo(number, divisor)
		if !number.IsUint64() || number.Uint64() > maxCycle {
			return nil, false
		}
		shares[i] = uint32(number.Uint64())
		sum += number.Uint64()
	}
	return shares, sum <= maxCycle
}
