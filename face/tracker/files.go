package tracker

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/psyche-go/psyche/face/metrics"
)

// file is a sink that writes encoded rows to a file.
type file struct {
	file   *os.File
	encode func(b []byte, row metrics.Row) ([]byte, error)
}

// Write implements Sink. After an error it truncates partially written rows.
func (f *file) Write(_ context.Context, rows []metrics.Row) error {
	at, err := f.file.Seek(0, 2)
	if err != nil {
		return err
	}
	var all []byte
	for _, row := range rows {
		if all, err = f.encode(all, row); err != nil {
			return fmt.Errorf("%w: %w", ErrGivenUp, err)
		}
	}
	w := bufio.NewWriter(f.file)
	_, err = w.Write(all)
	if err = errors.Join(err, w.Flush()); err != nil {
		return errors.Join(err, f.file.Truncate(at))
	}
	return nil
}

// Close implements Sink.
func (f *file) Close(context.Context) error { return f.file.Close() }

// JSONLines opens a sink that appends a JSON object for each row to a file. The object contains the
// metrics, _step and _timestamp (seconds). Values that are not finite numbers are null.
func JSONLines(path string) (Sink, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	opened, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &file{opened, func(b []byte, row metrics.Row) ([]byte, error) {
		line, err := JSON(row, nil)
		return append(append(b, line...), '\n'), err
	}}, nil
}

// JSON encodes a row as a JSON object. more contains additional fields.
func JSON(row metrics.Row, more map[string]any) ([]byte, error) {
	fields := map[string]any{"_step": row.Step, "_timestamp": float64(row.Time.UnixMicro()) / 1e6}
	for name, value := range row.Values {
		fields[name] = value
		if math.IsNaN(value) || math.IsInf(value, 0) {
			fields[name] = nil
		}
	}
	maps.Copy(fields, more)
	return json.Marshal(fields)
}

// TensorBoard opens a sink that writes a TensorBoard event file into a folder.
func TensorBoard(dir string) (Sink, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	now := time.Now()
	name := fmt.Sprintf("events.out.tfevents.%010d.%s.%d.0", now.Unix(), filepath.Base(host), os.Getpid())
	opened, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, err
	}
	first := protowire.AppendTag(appendTime(nil, now), 3, protowire.BytesType)
	first = protowire.AppendString(first, "brain.Event:2")
	if _, err := opened.Write(appendRecord(nil, first)); err != nil {
		return nil, errors.Join(err, opened.Close())
	}
	return &file{opened, appendScalars}, nil
}

// appendScalars appends the event of a row: its time, step, and a summary with a value for each
// metric.
func appendScalars(b []byte, row metrics.Row) ([]byte, error) {
	var summary []byte
	for _, name := range slices.Sorted(maps.Keys(row.Values)) {
		value := protowire.AppendTag(nil, 1, protowire.BytesType)
		value = protowire.AppendString(value, name)
		value = protowire.AppendTag(value, 2, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(float32(row.Values[name])))
		summary = protowire.AppendTag(summary, 1, protowire.BytesType)
		summary = protowire.AppendBytes(summary, value)
	}
	event := protowire.AppendTag(appendTime(nil, row.Time), 2, protowire.VarintType)
	event = protowire.AppendVarint(event, uint64(row.Step))
	event = protowire.AppendTag(event, 5, protowire.BytesType)
	return appendRecord(b, protowire.AppendBytes(event, summary)), nil
}

func appendTime(b []byte, at time.Time) []byte {
	b = protowire.AppendTag(b, 1, protowire.Fixed64Type)
	return protowire.AppendFixed64(b, math.Float64bits(float64(at.UnixMicro())/1e6))
}

// appendRecord appends an event with its length and the checksums of length and event.
func appendRecord(b, event []byte) []byte {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(event)))
	b = binary.LittleEndian.AppendUint32(append(b, length...), masked(length))
	return binary.LittleEndian.AppendUint32(append(b, event...), masked(event))
}

// masked returns the checksum of the format: CRC-32C, rotated and with an offset.
func masked(b []byte) uint32 {
	sum := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
	return (sum>>15 | sum<<17) + 0xa282ead8
}
