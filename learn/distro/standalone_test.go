//go:build cgo && amd64

package distro

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// standaloneCase is the first struct that testdata/standalone.c reads.
type standaloneCase struct {
	Rows, Cols, Stride, Chunks, K, Secants int32
	Column, Row                            [2]float32
	Decay, LR, Factor                      float32
	ColumnLee, RowLee                      int32
}

// standaloneBytes returns the input of the program and the expected output: the bits of the
// reference.
func standaloneBytes(t *testing.T, l Layout, topK int) (input, want []byte) {
	t.Helper()
	n := l.Elements()
	column, row := cosineTables[l.chunkRows](), cosineTables[l.chunkCols]()
	k := l.Codec(topK).K
	c := standaloneCase{
		Rows: int32(l.chunkRows), Cols: int32(l.chunkCols), Stride: int32(l.cols), Chunks: int32(l.Chunks()), K: int32(k),
		Secants: int32(len(secants())),
		Column:  [2]float32{column.mean, column.scale}, Row: [2]float32{row.mean, row.scale},
		Decay: 0.999, LR: 0.01, Factor: 0.9999,
	}
	if column.fast {
		c.ColumnLee = 1
	}
	if row.fast {
		c.RowLee = 1
	}
	// All inputs contain subnormal numbers.
	delta, grad, weights := normal(1, n, 1), normal(2, n, 1), normal(3, n, 1)
	for i := 0; i < n; i += 7 {
		delta[i], grad[i], weights[i] = delta[i]*1e-40, grad[i]*1e-41, weights[i]*1e-39
	}
	for i := range min(n, l.chunkCols) {
		delta[i], grad[i] = delta[i]*1e-40, grad[i]*1e-40
	}
	input = pack(t, c, column.basis, row.basis, secants(), delta, grad, weights)

	reference := newReference(l)
	r := l.Codec(topK).NewResult()
	p := EncodeParams{Decay: c.Decay, LR: c.LR, TopK: topK}
	if bad := reference.encode(0, l.Chunks(), delta, delta, grad, p, k, slots{counts: r.Counts, indices: r.Indices, values: r.Values}); bad >= 0 {
		t.Fatalf("chunk %d is not finite", bad)
	}
	want = pack(t, r.Counts, r.Indices, r.Values, delta)
	in := entries{indices: r.Indices, values: r.Values}
	for chunk := range l.Chunks() + 1 {
		in.offsets = append(in.offsets, int32(chunk*k))
		in.rates = append(in.rates, []float32{c.LR, c.LR / 3}[chunk%2])
	}
	reference.apply(0, l.Chunks(), in, weights, ApplyParams{WeightFactor: c.Factor})
	want = append(want, pack(t, weights)...)
	reference.add(0, l.Chunks(), in, delta)
	return input, append(want, pack(t, delta)...)
}

func pack(t *testing.T, parts ...any) []byte {
	t.Helper()
	var b bytes.Buffer
	for _, part := range parts {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// TestOtherCompilationsHaveTheSameBits compiles the kernels in two other ways: at a different
// optimisation level, and for this machine's processor with contraction enabled on the command
// line. Package distro itself is compiled with -O3. The test runs every instruction set of each
// build in a floating-point mode that is not the default.
func TestOtherCompilationsHaveTheSameBits(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: compilers take long")
	}
	compilers := map[string]string{}
	for _, name := range []string{"gcc", "clang"} {
		if path, err := exec.LookPath(name); err == nil {
			compilers[name] = path
		}
	}
	if len(compilers) == 0 {
		t.Skip("no gcc or clang in PATH to compile the kernels")
	}
	type io struct{ input, want []byte }
	var cases []io
	for _, l := range []Layout{
		newLayout(t, []int64{128, 128}, 64), newLayout(t, []int64{100, 29}, 64), newLayout(t, []int64{32, 12}, 16), newLayout(t, []int64{512}, 128),
	} {
		for _, topK := range []int{4, 100} {
			input, want := standaloneBytes(t, l, topK)
			cases = append(cases, io{input, want})
		}
	}
	for compiler, path := range compilers {
		for _, flags := range []string{"-O1", "-O2 -march=native -ffp-contract=fast"} {
			t.Run(compiler+" "+flags, func(t *testing.T) {
				binary := filepath.Join(t.TempDir(), "standalone")
				arguments := append(strings.Fields(flags), "-std=gnu11", "-o", binary, "testdata/standalone.c", "kernel.c")
				if out, err := exec.Command(path, arguments...).CombinedOutput(); err != nil {
					t.Fatalf("%s %v: %v\n%s", compiler, arguments, err, out)
				}
				for isa, set := range nativeISAs() {
					for i, c := range cases {
						command := exec.Command(binary, fmt.Sprint(isa))
						command.Stdin, command.Stderr = bytes.NewReader(c.input), os.Stderr
						got, err := command.Output()
						if err != nil {
							t.Fatalf("%s: %v", set.name, err)
						}
						if !bytes.Equal(got, c.want) {
							t.Errorf("%s, case %d: the bits differ from the reference", set.name, i)
						}
					}
				}
			})
		}
	}
}
