package tracker

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/psyche-go/psyche/face/metrics"
)

// fields reads a message whose fields may be repeated.
func fields(t *testing.T, b []byte) map[protowire.Number][][]byte {
	t.Helper()
	all := map[protowire.Number][][]byte{}
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			t.Fatal(protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			t.Fatal(protowire.ParseError(size))
		}
		value := b[n : n+size]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		all[number], b = append(all[number], value), b[n+size:]
	}
	return all
}

// TestMasked compares a checksum with a value from the format's own program: the checksum of the
// length of a record of 24 bytes, which begins every event file.
func TestMasked(t *testing.T) {
	if got := masked([]byte{0x18, 0, 0, 0, 0, 0, 0, 0}); got != 0x224b7fa3 {
		t.Errorf("got %#x; want 0x224b7fa3", got)
	}
}

func TestTensorBoard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tb")
	sink, err := TensorBoard(dir)
	if err != nil {
		t.Fatal(err)
	}
	rows := []metrics.Row{
		{Time: time.Unix(7, 250_000_000), Step: 300, Values: map[string]float64{"train/loss": 2.5, "train/lr": 0.001}},
		{Time: time.Unix(8, 0), Step: 301, Values: map[string]float64{"train/loss": math.NaN()}},
	}
	if err := sink.Write(t.Context(), rows); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	found, err := filepath.Glob(filepath.Join(dir, "events.out.tfevents.*"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	text, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	var events []map[protowire.Number][][]byte
	for len(text) > 0 {
		size := binary.LittleEndian.Uint64(text)
		event := text[12 : 12+size]
		if binary.LittleEndian.Uint32(text[8:]) != masked(text[:8]) || binary.LittleEndian.Uint32(text[12+size:]) != masked(event) {
			t.Fatal("a checksum is wrong")
		}
		events, text = append(events, fields(t, event)), text[16+size:]
	}
	if len(events) != 3 || string(events[0][3][0]) != "brain.Event:2" {
		t.Fatalf("events %v", events)
	}
	step, _ := protowire.ConsumeVarint(events[1][2][0])
	at, _ := protowire.ConsumeFixed64(events[1][1][0])
	if step != 300 || math.Float64frombits(at) != 7.25 {
		t.Errorf("step %d at %v", step, math.Float64frombits(at))
	}
	values := fields(t, events[1][5][0])[1]
	if len(values) != 2 {
		t.Fatalf("%d values", len(values))
	}
	loss := fields(t, values[0])
	bits, _ := protowire.ConsumeFixed32(loss[2][0])
	if string(loss[1][0]) != "train/loss" || math.Float32frombits(bits) != 2.5 {
		t.Errorf("%s is %v", loss[1][0], math.Float32frombits(bits))
	}
}
