package weights

import (
	"crypto/sha256"
	"encoding/binary"
	"math"

	"github.com/psyche-go/psyche/files/safetensors"
)

// Zeros makes an F32 tensor of zeros.
func Zeros(name string, shape ...int64) safetensors.Tensor { return empty(name, shape) }

// Ones makes an F32 tensor of ones.
func Ones(name string, shape ...int64) safetensors.Tensor {
	t := empty(name, shape)
	for i := 0; i < len(t.Data); i += 4 {
		binary.LittleEndian.PutUint32(t.Data[i:], math.Float32bits(1))
	}
	return t
}

// Normal returns an F32 tensor of independent random numbers with mean 0 and the given standard
// deviation. The numbers depend only on seed and name, not on other tensors.
//
// The bits are the same on every machine, which logarithms and cosines of a C library would not
// guarantee. Each number is the sum of twelve uniform integers (the Irwin-Hall distribution, within
// 0.003 of the normal one in distribution and cut off at six standard deviations), times a
// constant.
func Normal(seed uint64, name string, deviation float64, shape ...int64) safetensors.Tensor {
	t := empty(name, shape)
	random := newStream(seed, name)
	for i := 0; i < len(t.Data); i += 4 {
		binary.LittleEndian.PutUint32(t.Data[i:], math.Float32bits(random.normal(deviation)))
	}
	return t
}

func empty(name string, shape []int64) safetensors.Tensor {
	n := int64(1)
	for _, size := range shape {
		n *= size
	}
	return safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: shape, Data: make([]byte, 4*n)}
}

// stream is the SplitMix64 generator (Steele, Lea and Flood, 2014).
type stream struct{ state uint64 }

func newStream(seed uint64, name string) *stream {
	h := sha256.New()
	h.Write([]byte("psyche/init/v1"))
	h.Write(binary.LittleEndian.AppendUint64(nil, seed))
	h.Write([]byte(name))
	return &stream{binary.LittleEndian.Uint64(h.Sum(nil))}
}

func (s *stream) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// normal adds twelve uniform integers of 21 bits, three from each random word. Each has variance
// 2^42/12, so the sum, twice its distance from the middle, has deviation 2^22.
func (s *stream) normal(deviation float64) float32 {
	const bits, mask = 21, 1<<21 - 1
	var sum uint64
	for range 4 {
		r := s.next()
		sum += r&mask + r>>bits&mask + r>>(2*bits)&mask
	}
	centred := float64(int64(2*sum) - 12*mask) // exact
	return float32(centred * (deviation / (1 << 22)))
}
