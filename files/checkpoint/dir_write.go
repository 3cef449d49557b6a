package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/psyche-go/psyche/base/atomicfile"
	"github.com/psyche-go/psyche/files/safetensors"
)

// maxShardSize is the maximum number of bytes of tensors in one file, as in Hugging Face's writers.
const maxShardSize = 5 << 30

// Names of tensor files.
const (
	tensorSuffix = ".safetensors"
	singleFile   = "model.safetensors"
	indexFile    = "model.safetensors.index.json"
)

// stepKey is the metadata key for Snapshot.Step in a tensor file. The value is decimal.
const stepKey = "step"

// errOccupied means that a folder contains something other than a checkpoint.
var errOccupied = errors.New("the folder has files that are not part of a checkpoint")

// Extra is an additional file in the folder of a checkpoint, such as the state of an optimizer.
// Write creates it at the given path.
type Extra struct {
	Name  string
	Write func(path string) error
}

// WriteDir writes the snapshot as a Hugging Face folder. The folder appears atomically. An older
// checkpoint in its place is complete until then. If the folder contains anything else, WriteDir
// refuses with errOccupied and does not change it. WriteDir removes the remains of earlier attempts
// by killed processes.
func WriteDir(dir string, s Snapshot, extras ...Extra) error {
	return WriteDirThrough(dir, s, whole, extras...)
}

// Through writes the data of a tensor.
type Through func(w io.Writer, data []byte) error

// whole writes data unchanged.
func whole(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

// WriteDirThrough is like WriteDir, but calls through to write the data of each tensor. It does not
// read the data itself. Extras are written last.
func WriteDirThrough(dir string, s Snapshot, through Through, extras ...Extra) error {
	if err := writeDirThrough(dir, s, maxShardSize, through, extras); err != nil {
		return fmt.Errorf("write checkpoint %s: %w", dir, err)
	}
	return nil
}

func writeDirThrough(dir string, s Snapshot, shardSize int64, through Through, extras []Extra) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if err := checkConfig(s); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := CheckTarget(dir); err != nil {
		return err
	}
	// Failing to remove remains of other processes must not prevent writing.
	_ = RemoveUnfinishedOf(dir)
	return FillDir(dir, func(temporary string) error {
		if err := writeFiles(temporary, s, shardSize, through, extras); err != nil {
			return err
		}
		card, err := keptCard(dir)
		if card == nil || err != nil {
			return err
		}
		return writeFile(filepath.Join(temporary, CardFile), card)
	})
}

// FillDir creates a folder atomically and durably. fill puts everything into a temporary folder
// next to it, and makes the contents of the files durable. An existing folder of that name stays
// complete until the new folder replaces it. RemoveUnfinished removes the remains of processes that
// were killed during FillDir.
func FillDir(dir string, fill func(temporary string) error) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o777); err != nil {
		return err
	}
	temporary, release, err := makeUnfinished(dir)
	if err != nil {
		return err
	}
	defer release()
	defer func() {
		if err != nil {
			_ = os.RemoveAll(temporary)
		}
	}()
	if err := fill(temporary); err != nil {
		return err
	}
	if err := atomicfile.SyncFolder(temporary); err != nil {
		return err
	}
	return putInPlace(temporary, dir)
}

func writeFiles(temporary string, s Snapshot, shardSize int64, through Through, extras []Extra) error {
	for _, file := range s.Files {
		if err := writeFile(filepath.Join(temporary, file.Name), file.Data); err != nil {
			return err
		}
	}
	if err := writeTensors(temporary, s, shardSize, through); err != nil {
		return err
	}
	for _, extra := range extras {
		if !known(extra.Name) {
			return fmt.Errorf("%w: extra file name %q", ErrInvalid, extra.Name)
		}
		if err := extra.Write(filepath.Join(temporary, extra.Name)); err != nil {
			return err
		}
	}
	return nil
}

// writeTensors writes one file, or shards with their index.
func writeTensors(dir string, s Snapshot, shardSize int64, through Through) error {
	metadata := map[string]string{"format": "pt", stepKey: strconv.FormatUint(uint64(s.Step), 10)}
	shards := split(s.Tensors, shardSize)
	if len(shards) == 1 {
		return safetensors.WriteThrough(filepath.Join(dir, singleFile), shards[0], metadata, through)
	}
	index := shardIndex{WeightMap: map[string]string{}}
	for i, shard := range shards {
		name := fmt.Sprintf("model-%05d-of-%05d%s", i+1, len(shards), tensorSuffix)
		for _, tensor := range shard {
			index.WeightMap[tensor.Name] = name
			index.Metadata.TotalSize += int64(len(tensor.Data))
		}
		if err := safetensors.WriteThrough(filepath.Join(dir, name), shard, metadata, through); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return fmt.Errorf("encode %s: %w", indexFile, err)
	}
	return writeFile(filepath.Join(dir, indexFile), append(text, '\n'))
}

// shardIndex is the content of model.safetensors.index.json.
type shardIndex struct {
	Metadata struct {
		TotalSize int64 `json:"total_size"`
	} `json:"metadata"`
	WeightMap map[string]string `json:"weight_map"`
}

// split cuts the tensors into runs of at most size bytes; a larger tensor has its own run. There is
// at least one run.
func split(tensors []safetensors.Tensor, size int64) [][]safetensors.Tensor {
	var shards [][]safetensors.Tensor
	start, filled := 0, int64(0)
	for i, tensor := range tensors {
		if i > start && filled+int64(len(tensor.Data)) > size {
			shards = append(shards, tensors[start:i])
			start, filled = i, 0
		}
		filled += int64(len(tensor.Data))
	}
	return append(shards, tensors[start:])
}

// CheckTarget returns an error unless a checkpoint may be written to dir. This is the case if dir
// does not exist, is empty, or contains only the files of a checkpoint and a generated model card. The
// card of a training, which has the optimizer's state, may also be a person's: WriteDir keeps it.
func CheckTarget(dir string) error {
	card, err := keptCard(dir)
	if err != nil {
		return err
	}
	return checkFiles(dir, card != nil)
}

// CheckRemovable is like CheckTarget, but also returns an error if the folder has a person's card.
func CheckRemovable(dir string) error { return checkFiles(dir, false) }

// checkFiles returns an error if a folder contains anything except a checkpoint and a model card. anyCard
// permits the card of a person.
func checkFiles(dir string, anyCard bool) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	config := false
	for _, entry := range entries {
		own := known(entry.Name()) || entry.Name() == CardFile && (anyCard || holdsOwnCard(dir))
		if !entry.Type().IsRegular() || !own {
			return fmt.Errorf("%w: %s; choose another folder or move it away", errOccupied, filepath.Join(dir, entry.Name()))
		}
		config = config || entry.Name() == ConfigFile
	}
	if len(entries) > 0 && !config {
		return fmt.Errorf("%w: %s has files but not %s; choose another folder", errOccupied, dir, ConfigFile)
	}
	return nil
}

// putInPlace moves the new folder to dir and removes the folder that it replaces. If the system
// cannot exchange two folders atomically, the old one is renamed to <dir>.old until the new one is
// in place.
func putInPlace(temporary, dir string) error {
	_, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.Rename(temporary, dir)
		if err == nil {
			return atomicfile.SyncFolder(filepath.Dir(dir))
		}
		if errors.Is(err, fs.ErrExist) { // another process put its folder there since
			err = nil
		}
	}
	switch {
	case err != nil:
	case exchange(temporary, dir) == nil:
		err = os.RemoveAll(temporary) // now the old folder
	default:
		err = swap(temporary, dir)
	}
	if err != nil {
		return err
	}
	return atomicfile.SyncFolder(filepath.Dir(dir))
}

func swap(temporary, dir string) error {
	old := dir + ".old"
	if err := os.Rename(dir, old); err != nil {
		return err
	}
	if err := os.Rename(temporary, dir); err != nil {
		return errors.Join(err, os.Rename(old, dir))
	}
	return os.RemoveAll(old)
}

// writeFile creates a file durably.
func writeFile(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
