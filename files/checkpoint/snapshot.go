package checkpoint

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/files/safetensors"
	"lukechampine.com/blake3"
)

// Limits of a snapshot, also for data from peers.
const (
	maxFiles      = 64
	maxTensors    = 1 << 17
	maxNameLength = 255 // bytes
	maxRank       = 8
	MaxFileSize   = 64 << 20 // bytes of a file other than tensors; the largest tokenizers have 35 MB
)

// ErrInvalid means that a snapshot, manifest or folder is not a valid checkpoint.
var ErrInvalid = errors.New("invalid checkpoint")

// ConfigFile is the only file that every checkpoint has.
const ConfigFile = "config.json"

// File is a small file of a checkpoint, such as config.json, tokenizer.json or
// generation_config.json.
type File struct {
	Name string
	Data []byte
}

// Snapshot is a model at one step, with its files and tensors sorted by name.
type Snapshot struct {
	Step    uint32
	Files   []File
	Tensors []safetensors.Tensor
}

// File returns the data of the named file.
func (s Snapshot) File(name string) ([]byte, bool) {
	i, found := slices.BinarySearchFunc(s.Files, name, func(f File, name string) int { return strings.Compare(f.Name, name) })
	if !found {
		return nil, false
	}
	return s.Files[i].Data, true
}

// Sort sorts files and tensors by name.
func (s Snapshot) Sort() {
	slices.SortFunc(s.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	slices.SortFunc(s.Tensors, func(a, b safetensors.Tensor) int { return strings.Compare(a.Name, b.Name) })
}

// Validate checks names, order, limits, and that every tensor's data fits its shape.
func (s Snapshot) Validate() error {
	if err := s.manifestWithout().validate(); err != nil {
		return err
	}
	for _, tensor := range s.Tensors {
		if err := tensor.Validate(); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	return nil
}

// Manifest returns the manifest of the snapshot, which must be valid.
func (s Snapshot) Manifest() Manifest {
	parts := s.Parts()
	hashes := make([][32]byte, len(parts))
	for i, part := range parts {
		hashes[i] = blake3.Sum256(part)
	}
	return s.ManifestOf(hashes)
}

// Parts returns the data of all files and then of all tensors, in their order.
func (s Snapshot) Parts() [][]byte {
	parts := make([][]byte, 0, len(s.Files)+len(s.Tensors))
	for _, file := range s.Files {
		parts = append(parts, file.Data)
	}
	for _, tensor := range s.Tensors {
		parts = append(parts, tensor.Data)
	}
	return parts
}

// ManifestOf is Manifest for callers that already know the BLAKE3 hashes of the parts.
func (s Snapshot) ManifestOf(hashes [][32]byte) Manifest {
	m := s.manifestWithout()
	for i := range s.Files {
		m.Files[i].Hash = hashes[i]
	}
	for i := range s.Tensors {
		m.Tensors[i].Hash = hashes[len(s.Files)+i]
	}
	return m
}

// manifestWithout returns the manifest with zero hashes.
func (s Snapshot) manifestWithout() Manifest {
	m := Manifest{Step: s.Step, Files: make([]Entry, len(s.Files)), Tensors: make([]TensorEntry, len(s.Tensors))}
	for i, file := range s.Files {
		m.Files[i] = Entry{Name: file.Name, Size: uint64(len(file.Data))}
	}
	for i, tensor := range s.Tensors {
		m.Tensors[i] = TensorEntry{Name: tensor.Name, DType: tensor.DType, Shape: tensor.Shape}
	}
	return m
}

// knownFiles matches the names that Hugging Face tools use in a model's folder. No other file is
// written, read or replaced there, because peers send file names, and a folder may contain files
// that its owner wants to keep.
var knownFiles = regexp.MustCompile(`^(` +
	`config\.json|generation_config\.json|tokenizer\.json|tokenizer_config\.json|special_tokens_map\.json|` +
	`added_tokens\.json|vocab\.json|merges\.txt|tokenizer\.model|chat_template\.(json|jinja)|` +
	`model(-\d{5}-of-\d{5})?\.safetensors|model\.safetensors\.index\.json|optimizer\.safetensors|psyche\.json)$`)

func known(name string) bool { return knownFiles.MatchString(name) }

// IsPart reports whether a file with that name may belong to a checkpoint. Only such files are
// downloaded from a repository.
func IsPart(name string) bool { return known(name) && name != optimizerFile }

// optimizerFile is the local optimizer state that package train writes to a model's folder.
const optimizerFile = "optimizer.safetensors"

// besideTensors reports whether a snapshot may have a File with that name.
func besideTensors(name string) bool {
	return known(name) && !strings.HasSuffix(name, tensorSuffix) && name != indexFile && name != FactsFile
}

func checkTensorName(name string) error {
	if name == "" || len(name) > maxNameLength || !utf8.ValidString(name) || strings.HasPrefix(name, "__") {
		return fmt.Errorf("%w: tensor name %q is not allowed", ErrInvalid, name)
	}
	return nil
}
