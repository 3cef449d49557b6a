package checkpoint

import (
	"fmt"
	"io"

	"github.com/psyche-go/psyche/files/safetensors"
)

// Opened is the model of a folder whose tensors stay on the disk. They can be read as long as the
// Opened is reachable, even if the folder was moved or removed: the garbage collector closes its
// files. The tensors are not verified to be unchanged since they were written.
type Opened struct {
	Snapshot                     // its tensors have no data
	Data     []*io.SectionReader // of the tensors, in their order
}

// OpenDir reads a folder like ReadDir, but leaves the tensors' data on the disk.
func OpenDir(dir string) (*Opened, error) {
	data := make(map[string]*io.SectionReader)
	s, err := readDir(dir, func(path string) ([]safetensors.Tensor, map[string]string, error) {
		file, err := openTensors(path)
		if err != nil {
			return nil, nil, err
		}
		for _, e := range file.Tensors {
			data[e.Name] = file.data(e)
		}
		return file.tensors(), file.Metadata, nil
	})
	if err == nil {
		err = s.manifestWithout().validate()
	}
	if err != nil {
		return nil, fmt.Errorf("open checkpoint %s: %w", dir, err)
	}
	o := &Opened{Snapshot: s}
	for _, tensor := range s.Tensors {
		o.Data = append(o.Data, data[tensor.Name])
	}
	return o, nil
}
