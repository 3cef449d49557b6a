// Package fuzztest runs fuzz targets on generated inputs in every go test. It finds incorrect
// targets, and decoders that fail after a few inputs, before the target is fuzzed.
//
//	func FuzzDecode(f *testing.F) {
//		f.Add(valid)
//		fuzztest.Run(f, func(t *testing.T, b []byte) { … })
//	}
//
// Without -fuzz, Run tries the seeds of f.Add and of testdata/fuzz like f.Fuzz, and up to 2,000
// generated inputs: mutated seeds and random values. A target gets the same sequence of inputs in every
// run. Run stops generating after 300 ms, so a slow target or machine gets fewer inputs. The
// environment variable FUZZ_INPUTS sets the number of inputs and removes the time limit. With -fuzz,
// Run only calls f.Fuzz.
package fuzztest

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	mostInputs = 2000
	mostTime   = 300 * time.Millisecond
)

// marker is the string or []byte argument of a special seed, which Run adds after all seeds of f.Add.
// When the target receives this seed, Run generates inputs instead.
const marker = "fuzztest generates inputs here"

// Run is like f.Fuzz, but also tries generated inputs if the target is not being fuzzed. The property
// is a function as for f.Fuzz; one of its arguments must be a string or a []byte.
func Run(f *testing.F, property any) {
	f.Helper()
	if isFuzzing() {
		f.Fuzz(property)
		return
	}
	g := newGenerator(f, property)
	f.Add(g.markerSeed(f)...)
	f.Fuzz(reflect.MakeFunc(g.property.Type(), func(in []reflect.Value) []reflect.Value {
		g.seed(in[0].Interface().(*testing.T), in[1:])
		return nil
	}).Interface())
}

// isFuzzing reports whether the process was started with -fuzz.
func isFuzzing() bool {
	pattern := flag.Lookup("test.fuzz")
	return pattern != nil && pattern.Value.String() != ""
}

// generator tries the inputs of one target.
type generator struct {
	property reflect.Value
	types    []reflect.Type // of the arguments after *testing.T
	random   *rand.Rand
	seeds    [][]reflect.Value // tried so far
	stored   int               // seeds in testdata/fuzz, which come after the marker
	inputs   int               // still to be generated
	made     int               // generated so far
	time     time.Duration     // remaining time for them
	started  bool              // the marker was reached
}

func newGenerator(f *testing.F, property any) *generator {
	f.Helper()
	v := reflect.ValueOf(property)
	if v.Kind() != reflect.Func || v.Type().NumIn() < 2 {
		f.Fatalf("property is %T, want a function of *testing.T and an input", property)
	}
	g := newGeneratorOf(f.Name(), v)
	if text := os.Getenv("FUZZ_INPUTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			f.Fatalf("FUZZ_INPUTS: %v", err)
		}
		g.inputs, g.time = n, time.Hour
	}
	if files, err := os.ReadDir(filepath.Join("testdata", "fuzz", f.Name())); err == nil {
		g.stored = len(files)
	}
	return g
}

func newGeneratorOf(target string, property reflect.Value) *generator {
	g := &generator{property: property, inputs: mostInputs, time: mostTime}
	for i := 1; i < property.Type().NumIn(); i++ {
		g.types = append(g.types, property.Type().In(i))
	}
	name := fnv.New64a()
	_, _ = name.Write([]byte(target))
	g.random = rand.New(rand.NewPCG(name.Sum64(), 0))
	return g
}

// markerSeed returns the marker as a seed.
func (g *generator) markerSeed(f *testing.F) []any {
	f.Helper()
	seed, marked := make([]any, len(g.types)), false
	for i, t := range g.types {
		v := reflect.New(t).Elem()
		if !marked && isText(t) {
			v.Set(reflect.ValueOf(marker).Convert(t))
			marked = true
		}
		seed[i] = v.Interface()
	}
	if !marked {
		f.Fatal("property has no string and no []byte")
	}
	return seed
}

func isText(t reflect.Type) bool {
	return t.Kind() == reflect.String || t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8
}

func (g *generator) isMarker(input []reflect.Value) bool {
	for _, v := range input {
		if isText(v.Type()) {
			return textOf(v) == marker
		}
	}
	return false
}

// seed tries one seed. For the marker and each seed after it, it also tries an equal part of the
// generated inputs.
func (g *generator) seed(t *testing.T, input []reflect.Value) {
	share := 1
	switch {
	case g.isMarker(input):
		g.started = true
		if g.stored > 0 {
			share = 2
		}
	default:
		g.seeds = append(g.seeds, clone(input))
		g.call(t, input)
		if t.Failed() || !g.started {
			return
		}
		share = max(g.stored, 1)
		g.stored--
	}
	g.generate(t, (g.inputs+share-1)/share, g.time/time.Duration(share))
}

// generate tries n inputs, or fewer if that takes too long.
func (g *generator) generate(t *testing.T, n int, limit time.Duration) {
	began := time.Now()
	for done := 0; done < n && time.Since(began) < limit; done++ {
		input := g.next()
		ok := t.Run(strconv.Itoa(g.made), func(t *testing.T) {
			held := false
			defer func() {
				if t.Failed() || !held && !t.Skipped() {
					t.Logf("the input is\n\tf.Add(%s)", describe(input))
				}
			}()
			g.call(t, clone(input))
			held = true
		})
		g.inputs--
		g.made++
		if !ok {
			g.inputs = 0
			return
		}
	}
	g.time -= time.Since(began)
}

func (g *generator) call(t *testing.T, input []reflect.Value) {
	g.property.Call(append([]reflect.Value{reflect.ValueOf(t)}, input...))
}

// clone copies an input, because a property may modify its bytes.
func clone(input []reflect.Value) []reflect.Value {
	c := make([]reflect.Value, len(input))
	for i, v := range input {
		if c[i] = v; v.Kind() == reflect.Slice {
			c[i] = reflect.ValueOf([]byte(textOf(v))).Convert(v.Type())
		}
	}
	return c
}

// describe writes an input as arguments of f.Add.
func describe(input []reflect.Value) string {
	parts := make([]string, len(input))
	for i, v := range input {
		if parts[i] = fmt.Sprintf("%s(%v)", v.Type(), v); isText(v.Type()) {
			parts[i] = fmt.Sprintf("%s(%q)", strings.Replace(v.Type().String(), "uint8", "byte", 1), textOf(v))
		}
	}
	return strings.Join(parts, ", ")
}
