package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
	"github.com/psyche-go/psyche/files/safetensors"
)

// ReadDir reads a Hugging Face folder: config.json, the tokenizer's and other known files, and the
// tensors of model.safetensors or of the shards in the index. It compares the tensors with
// config.json as far as every architecture allows.
func ReadDir(dir string) (Snapshot, error) { return ReadDirWatched(dir, nil) }

// ReadDirWatched is ReadDir with progress.
func ReadDirWatched(dir string, watch Watch) (Snapshot, error) {
	counting := count(dir, watch)
	s, err := readDir(dir, func(path string) ([]safetensors.Tensor, map[string]string, error) {
		return safetensors.ReadThrough(path, counting.through)
	})
	if err == nil {
		err = s.Validate()
	}
	if err != nil {
		return Snapshot{}, fmt.Errorf("read checkpoint %s: %w", dir, err)
	}
	return s, nil
}

// CheckDir returns the error with which ReadDir would fail, and the number of values of the
// tensors. It reads only the headers of tensor files.
func CheckDir(dir string) (values uint64, err error) {
	s, err := readDir(dir, readHeader)
	m := s.manifestWithout()
	if err == nil {
		err = m.validate()
	}
	if err != nil {
		return 0, fmt.Errorf("check checkpoint %s: %w", dir, err)
	}
	for _, tensor := range m.Tensors {
		n := uint64(1)
		for _, side := range tensor.Shape {
			n *= uint64(side)
		}
		values += n
	}
	return values, nil
}

// tensorReader reads a tensor file and its metadata.
type tensorReader func(path string) ([]safetensors.Tensor, map[string]string, error)

// readHeader is a tensorReader that returns tensors without data.
func readHeader(path string) ([]safetensors.Tensor, map[string]string, error) {
	file, err := openTensors(path)
	if err != nil {
		return nil, nil, err
	}
	return file.tensors(), file.Metadata, file.Close()
}

// opened is an open tensor file.
type opened struct {
	*os.File
	safetensors.Header
	begin int64 // offset of the data
}

func openTensors(path string) (f *opened, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%w: %s is not a regular file", ErrInvalid, path)
	}
	header, err := safetensors.ReadHeader(file, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, path, err)
	}
	return &opened{file, header, info.Size() - header.DataSize}, nil
}

// tensors returns the tensors without data.
func (o *opened) tensors() (tensors []safetensors.Tensor) {
	for _, e := range o.Tensors {
		tensors = append(tensors, safetensors.Tensor{Name: e.Name, DType: e.DType, Shape: e.Shape})
	}
	return tensors
}

// data returns a reader of a tensor's data.
func (o *opened) data(e safetensors.Entry) *io.SectionReader {
	return io.NewSectionReader(o.File, o.begin+e.Begin, e.End-e.Begin)
}

func readDir(dir string, read tensorReader) (Snapshot, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Snapshot{}, err
	}
	var s Snapshot
	for _, entry := range entries {
		name := entry.Name()
		if !besideTensors(name) {
			continue
		}
		data, err := readCapped(filepath.Join(dir, name))
		if err != nil {
			return Snapshot{}, err
		}
		s.Files = append(s.Files, File{Name: name, Data: data})
	}
	if _, found := s.File(ConfigFile); !found {
		return Snapshot{}, fmt.Errorf("%w: %s is missing; a model folder has config.json and model.safetensors", ErrInvalid, ConfigFile)
	}
	if err := s.readTensors(dir, read); err != nil {
		return Snapshot{}, err
	}
	s.Sort()
	return s, checkConfig(s)
}

func (s *Snapshot) readTensors(dir string, read tensorReader) error {
	path := filepath.Join(dir, singleFile)
	tensors, metadata, err := read(path)
	if !errors.Is(err, fs.ErrNotExist) {
		if err != nil {
			return err
		}
		s.Tensors = tensors
		s.Step, err = parseStep(path, metadata)
		return err
	}
	data, err := readCapped(filepath.Join(dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %s and %s are both missing", ErrInvalid, singleFile, indexFile)
	}
	if err != nil {
		return err
	}
	return s.readShards(dir, data, read)
}

// readShards requires the shards to contain exactly the tensors in the index.
func (s *Snapshot) readShards(dir string, data []byte, read tensorReader) error {
	index, err := parseIndex(data)
	if err != nil {
		return err
	}
	for i, name := range index.files() {
		path := filepath.Join(dir, name)
		tensors, metadata, err := read(path)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w: %s lists a missing shard: %w", ErrInvalid, indexFile, err)
		}
		if err != nil {
			return err
		}
		for _, tensor := range tensors {
			if index.WeightMap[tensor.Name] != name {
				return index.misplaced(name, tensor.Name)
			}
		}
		s.Tensors = append(s.Tensors, tensors...)
		step, err := parseStep(path, metadata)
		if err != nil {
			return err
		}
		if i > 0 && step != s.Step {
			return fmt.Errorf("%w: the shards have different steps, %d and %d", ErrInvalid, s.Step, step)
		}
		s.Step = step
	}
	if len(s.Tensors) != len(index.WeightMap) {
		return index.missing(s.Tensors)
	}
	return nil
}

// misplaced returns the error for a shard with a tensor that belongs elsewhere.
func (index shardIndex) misplaced(shard, tensor string) error {
	if other, found := index.WeightMap[tensor]; found {
		return fmt.Errorf("%w: %s contains tensor %s, but %s assigns this tensor to %q", ErrInvalid, shard, tensor, indexFile, other)
	}
	return fmt.Errorf("%w: %s contains tensor %s, which %s does not list", ErrInvalid, shard, tensor, indexFile)
}

// missing returns the error for an index with tensors that no shard has.
func (index shardIndex) missing(held []safetensors.Tensor) error {
	absent := maps.Clone(index.WeightMap)
	for _, tensor := range held {
		delete(absent, tensor.Name)
	}
	for _, first := range slices.Sorted(maps.Keys(absent)) {
		return fmt.Errorf("%w: %s lists tensor %s, but %s does not contain it (%d such tensors)", ErrInvalid, indexFile, first, absent[first], len(absent))
	}
	return fmt.Errorf("%w: a shard contains a tensor twice", ErrInvalid)
}

// parseIndex parses an index and checks the names of its shards. It ignores the metadata, which
// differs between writers.
func parseIndex(data []byte) (shardIndex, error) {
	var read struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	err := filestart.Check(data)
	if err == nil {
		err = json.Unmarshal(pythonjson.Quoted(data), &read)
	}
	if err != nil {
		return shardIndex{}, fmt.Errorf("%w: %s: %w", ErrInvalid, indexFile, err)
	}
	index := shardIndex{WeightMap: read.WeightMap}
	if len(index.WeightMap) == 0 {
		return shardIndex{}, fmt.Errorf("%w: %s lists no tensors (weight_map)", ErrInvalid, indexFile)
	}
	for _, name := range index.files() {
		if name != filepath.Base(name) || !known(name) || !strings.HasSuffix(name, tensorSuffix) {
			return shardIndex{}, fmt.Errorf("%w: %s has an invalid shard name %q", ErrInvalid, indexFile, name)
		}
	}
	return index, nil
}

// files returns the names of the shards, sorted.
func (index shardIndex) files() []string {
	return slices.Compact(slices.Sorted(maps.Values(index.WeightMap)))
}

// parseStep returns the step in the metadata of a tensor file, or 0 if another program wrote the
// file.
func parseStep(path string, metadata map[string]string) (uint32, error) {
	text, found := metadata[stepKey]
	if !found {
		return 0, nil
	}
	step, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("%w: %s: metadata step is %q, want a number below 2^32", ErrInvalid, path, text)
	}
	return uint32(step), nil
}

func readCapped(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > MaxFileSize {
		return nil, fmt.Errorf("%w: %s is not a regular file of at most %d bytes", ErrInvalid, path, MaxFileSize)
	}
	return os.ReadFile(path)
}

// maxFurtherLayers is the maximum of num_nextn_predict_layers; published models have one.
const maxFurtherLayers = 64

// checkConfig compares the tensors with the sizes in config.json. It ignores sizes that config.json
// does not have. The architecture's own code checks the shapes of all tensors.
func checkConfig(s Snapshot) error {
	data, found := s.File(ConfigFile)
	if !found {
		return fmt.Errorf("%w: %s is missing", ErrInvalid, ConfigFile)
	}
	var config struct {
		Architectures []string `json:"architectures"`
		VocabSize     *int64   `json:"vocab_size"`
		HiddenSize    *int64   `json:"hidden_size"`
		Layers        *int     `json:"num_hidden_layers"`
		Further       int      `json:"num_nextn_predict_layers"` // additional layers after the last, as in DeepSeek-V3
	}
	err := filestart.Check(data)
	if err == nil {
		err = json.Unmarshal(pythonjson.Quoted(data), &config)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
		return fmt.Errorf("%w: %s: %s has the wrong type: %s", ErrInvalid, ConfigFile, wrong.Field, wrong.Value)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, ConfigFile, err)
	}
	if len(config.Architectures) == 0 {
		return fmt.Errorf("%w: %s: architectures is missing or empty", ErrInvalid, ConfigFile)
	}
	if config.Further < 0 || config.Further > maxFurtherLayers {
		return fmt.Errorf("%w: %s: num_nextn_predict_layers is %d, want 0 to %d", ErrInvalid, ConfigFile, config.Further, maxFurtherLayers)
	}
	layers := map[string]bool{}
	for _, tensor := range s.Tensors {
		if rest, found := strings.CutPrefix(tensor.Name, "model.layers."); found {
			layer, _, _ := strings.Cut(rest, ".")
			layers[layer] = true
		}
		if tensor.Name != "model.embed_tokens.weight" || config.VocabSize == nil || config.HiddenSize == nil {
			continue
		}
		if want := []int64{*config.VocabSize, *config.HiddenSize}; !slices.Equal(tensor.Shape, want) {
			return fmt.Errorf("%w: tensor %s has shape %v, %s wants %v (vocab_size, hidden_size)",
				ErrInvalid, tensor.Name, tensor.Shape, ConfigFile, want)
		}
	}
	if config.Layers == nil || len(layers) == 0 {
		return nil
	}
	if surplus := len(layers) - *config.Layers; surplus < 0 || surplus > config.Further {
		return fmt.Errorf("%w: the tensors have %d layers, but %s requires %d (num_hidden_layers) and at most %d more (num_nextn_predict_layers)",
			ErrInvalid, len(layers), ConfigFile, *config.Layers, config.Further)
	}
	return nil
}
