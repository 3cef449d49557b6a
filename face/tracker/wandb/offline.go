package wandb

import (
	"cmp"
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
	"github.com/psyche-go/psyche/face/tracker"
)

// Numbers of protobuf fields.
const (
	recordNumber, recordHistory, recordRun, recordExit, recordHeader = 1, 2, 17, 18, 21

	runID, runEntity, runProject, runConfig, runGroup, runName, runStart = 1, 2, 3, 4, 6, 8, 17
	configUpdate, itemKey, itemValue                                     = 1, 1, 16
	historyItem, historyStep, stepNumber                                 = 1, 2, 1
	headerVersion, versionProducer, versionConsumer                      = 1, 1, 2
)

// offline is a sink that writes a folder.
type offline struct {
	file    *os.File
	at      int // in the block
	number  uint64
	failed  error
	folder  string
	started time.Time
}

// Offline creates a folder in dir, with a name that starts with offline-run-. It returns a sink
// that writes into the folder, and the folder's path.
func Offline(dir string, run Run) (sink tracker.Sink, folder string, err error) {
	id, err := newID()
	if err != nil {
		return nil, "", err
	}
	run.Project = cmp.Or(run.Project, "psyche")
	now := time.Now()
	folder = filepath.Join(dir, "offline-run-"+now.Format("20060102_150405")+"-"+id)
	if err := errors.Join(os.MkdirAll(filepath.Join(folder, "files"), 0o755), os.MkdirAll(filepath.Join(folder, "logs"), 0o755)); err != nil {
		return nil, "", err
	}
	file, err := os.OpenFile(filepath.Join(folder, "run-"+id+".wandb"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, "", err
	}
	o := &offline{file: file, folder: folder, started: now}
	head := append([]byte(":W&B"), 0xe1, 0xbe, 0) // magic and version of the file
	o.at = len(head)
	_, err = file.Write(head)
	version := appendText(appendText(nil, versionProducer, "0.18.0"), versionConsumer, "0.1.0")
	if err == nil {
		err = o.record(recordHeader, appendBytes(nil, headerVersion, version))
	}
	if err == nil {
		err = o.record(recordRun, run.record(id, now))
	}
	if err != nil {
		return nil, "", errors.Join(err, file.Close())
	}
	return o, folder, nil
}

// record returns the first record of a run.
func (r Run) record(id string, now time.Time) []byte {
	b := appendText(nil, runID, id)
	for _, field := range []struct {
		number protowire.Number
		text   string
	}{{runEntity, r.Entity}, {runProject, r.Project}, {runGroup, r.Group}, {runName, r.Name}} {
		if field.text != "" {
			b = appendText(b, field.number, field.text)
		}
	}
	var config []byte
	for _, name := range slices.Sorted(maps.Keys(r.Config)) {
		value, err := json.Marshal(r.Config[name])
		if err != nil {
			continue // Online reports this error
		}
		config = appendBytes(config, configUpdate, appendText(appendText(nil, itemKey, name), itemValue, string(value)))
	}
	start := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(now.Unix()))
	start = protowire.AppendVarint(protowire.AppendTag(start, 2, protowire.VarintType), uint64(now.Nanosecond()))
	return appendBytes(appendBytes(b, runConfig, config), runStart, start)
}

// Write implements tracker.Sink.
func (o *offline) Write(_ context.Context, rows []metrics.Row) error {
	if o.failed != nil { // it may have failed in the middle of a row
		return fmt.Errorf("%w: %s: %w", tracker.ErrGivenUp, o.folder, o.failed)
	}
	for _, row := range rows {
		var history []byte
		add := func(name, value string) {
			history = appendBytes(history, historyItem, appendText(appendText(nil, itemKey, name), itemValue, value))
		}
		for _, name := range slices.Sorted(maps.Keys(row.Values)) {
			value := row.Values[name]
			switch {
			case math.IsNaN(value):
				add(name, "NaN")
			case math.IsInf(value, 1):
				add(name, "Infinity")
			case math.IsInf(value, -1):
				add(name, "-Infinity")
			default:
				add(name, fmt.Sprint(value))
			}
		}
		add("_step", fmt.Sprint(row.Step))
		add("_timestamp", fmt.Sprintf("%.6f", float64(row.Time.UnixMicro())/1e6))
		add("_runtime", fmt.Sprintf("%.6f", row.Time.Sub(o.started).Seconds()))
		step := protowire.AppendVarint(protowire.AppendTag(nil, stepNumber, protowire.VarintType), uint64(row.Step))
		if o.failed = o.record(recordHistory, appendBytes(history, historyStep, step)); o.failed != nil {
			return fmt.Errorf("%w: %s: %w", tracker.ErrGivenUp, o.folder, o.failed)
		}
	}
	return nil
}

// Close implements tracker.Sink.
func (o *offline) Close(context.Context) error {
	return errors.Join(o.record(recordExit, nil), o.file.Close())
}

// record writes a record of the given kind.
func (o *offline) record(kind protowire.Number, body []byte) error {
	o.number++
	b := protowire.AppendVarint(protowire.AppendTag(nil, recordNumber, protowire.VarintType), o.number)
	return o.frame(appendBytes(b, kind, body))
}

// Framing of records in blocks: checksum, length, and the position of each fragment in its record.
const (
	blockSize  = 32768
	pieceHead  = 7
	pieceWhole = 1
	pieceFirst = 2
	pieceInner = 3
	pieceLast  = 4
)

// frame writes a record, in fragments that do not cross the end of a block.
func (o *offline) frame(record []byte) error {
	var b []byte
	for first := true; first || len(record) > 0; first = false {
		if left := blockSize - o.at; left < pieceHead {
			b = append(b, make([]byte, left)...)
			o.at = 0
		}
		n := min(len(record), blockSize-o.at-pieceHead)
		place := byte(pieceInner)
		switch last := n == len(record); {
		case first && last:
			place = pieceWhole
		case first:
			place = pieceFirst
		case last:
			place = pieceLast
		}
		piece := record[:n]
		sum := crc32.Update(crc32.ChecksumIEEE([]byte{place}), crc32.IEEETable, piece)
		b = binary.LittleEndian.AppendUint32(b, sum)
		b = append(binary.LittleEndian.AppendUint16(b, uint16(n)), place)
		b = append(b, piece...)
		o.at = (o.at + pieceHead + n) % blockSize
		record = record[n:]
	}
	_, err := o.file.Write(b)
	return err
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), text)
}

func appendBytes(b []byte, number protowire.Number, body []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), body)
}
