package weights

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/torch"
)

// ErrMismatch means that a checkpoint's tensors do not match the model.
var ErrMismatch = errors.New("weights do not fit the model")

// dtypes are the element types that weights may have in a checkpoint.
var dtypes = map[safetensors.DType]torch.DType{
	safetensors.F32:  torch.F32,
	safetensors.BF16: torch.BF16,
	safetensors.F16:  torch.F16,
}

// Source provides the tensors of a checkpoint as f32 parameters. It must be used inside one Do.
// Unless Close succeeds, it frees the taken parameters.
type Source struct {
	scope  *torch.Scope
	byName map[string]safetensors.Tensor
	shared map[string]*torch.Tensor // for NewTwin and NewCopy, instead of byName
	apart  bool                     // for NewCopy: shared tensors are copied
	taken  []torch.Parameter
	fixed  []torch.Parameter
	err    error // the first one
}

// NewSource returns a Source of tensors.
func NewSource(s *torch.Scope, tensors []safetensors.Tensor) *Source {
	src := &Source{scope: s, byName: make(map[string]safetensors.Tensor, len(tensors))}
	for _, t := range tensors {
		if _, twice := src.byName[t.Name]; twice {
			src.fail("tensor %s appears twice", t.Name)
		}
		src.byName[t.Name] = t
	}
	return src
}

// NewTwin returns a Source of the weights of an existing model, parameters and buffers, for another
// engine of its device: with the same memory, but separate gradients.
func NewTwin(s *torch.Scope, existing []torch.Parameter) *Source {
	src := &Source{scope: s, shared: make(map[string]*torch.Tensor, len(existing))}
	for _, p := range existing {
		src.shared[p.Name] = p.Tensor
	}
	return src
}

// NewCopy returns a Source of copies of the weights of an existing model, parameters and buffers,
// for an engine of any device.
func NewCopy(s *torch.Scope, existing []torch.Parameter) *Source {
	src := NewTwin(s, existing)
	src.apart = true
	return src
}

func (s *Source) fail(format string, args ...any) {
	if s.err == nil {
		s.err = fmt.Errorf("%w: "+format, append([]any{ErrMismatch}, args...)...)
	}
}

// Take returns the parameter with a name and a shape. If the tensor is missing or does not fit, it
// returns nil, and Close returns the error.
func (s *Source) Take(name string, shape ...int64) *torch.Tensor {
	t := s.read(s.scope, name, shape)
	if t == nil {
		return nil
	}
	return s.parameter(name, t)
}

// TakeBuffer is Take for a tensor that is not trained. Close returns it among the
// buffers.
func (s *Source) TakeBuffer(name string, shape ...int64) *torch.Tensor {
	t := s.read(s.scope, name, shape)
	if t == nil {
		return nil
	}
	s.fixed = append(s.fixed, torch.Parameter{Name: name, Tensor: s.scope.Keep(t)})
	return t
}

// Matrix names a parameter [Rows,Columns].
type Matrix struct {
	Name          string
	Rows, Columns int64
}

// TakeTogether returns several parameters with the same number of columns that are adjacent in
// memory. If a tensor is missing or does not fit, it returns nils, and Close returns the error.
func (s *Source) TakeTogether(wanted ...Matrix) []*torch.Tensor {
	out := make([]*torch.Tensor, len(wanted))
	_ = s.scope.Sub(func(inner *torch.Scope) error { // frees the parts
		if s.shared != nil && !s.apart { // they are already adjacent
			for i, w := range wanted {
				if t := s.read(inner, w.Name, []int64{w.Rows, w.Columns}); t != nil {
					out[i] = s.parameter(w.Name, t)
				}
			}
			return s.err
		}
		var parts []*torch.Tensor
		for _, w := range wanted {
			parts = append(parts, s.read(inner, w.Name, []int64{w.Rows, w.Columns}))
		}
		if s.err != nil {
			return s.err // Close returns it
		}
		all, first := inner.Cat(0, parts...), int64(0)
		for i, w := range wanted {
			out[i] = s.parameter(w.Name, all.Narrow(0, first, w.Rows).Detach())
			first += w.Rows
		}
		return nil
	})
	return out
}

// read takes a tensor out of the source as f32; nil after an error.
func (s *Source) read(scope *torch.Scope, name string, shape []int64) *torch.Tensor {
	if t, ok := s.shared[name]; ok {
		if got := t.Shape(); !slices.Equal(got, shape) {
			s.fail("tensor %s has shape %v, want %v", name, got, shape)
			return nil
		}
		if s.apart {
			return scope.Copy(t)
		}
		return scope.Alias(t)
	}
	stored, ok := s.byName[name]
	if !ok {
		s.fail("tensor %s is missing", name)
		return nil
	}
	delete(s.byName, name)
	dtype, err := check(stored, shape)
	if err != nil {
		s.fail("%v", err)
	}
	if s.err != nil {
		return nil
	}
	t := scope.FromBytes(stored.Data, dtype, shape...)
	if dtype != torch.F32 {
		t = t.To(torch.F32)
	}
	return t
}

func (s *Source) parameter(name string, t *torch.Tensor) *torch.Tensor {
	s.scope.Keep(t).SetRequiresGrad(true)
	s.taken = append(s.taken, torch.Parameter{Name: name, Tensor: t})
	return t
}

// Close returns all parameters and buffers taken, sorted by name. After an error, or if tensors are
// left over, it frees them and returns an error.
func (s *Source) Close() (parameters, buffers []torch.Parameter, err error) {
	if s.err == nil && len(s.byName) > 0 {
		left := slices.Sorted(maps.Keys(s.byName))
		s.fail("%d unknown tensors, the first is %s", len(left), left[0])
	}
	if s.err != nil {
		Free(s.taken)
		Free(s.fixed)
		return nil, nil, s.err
	}
	SortByName(s.taken)
	SortByName(s.fixed)
	return s.taken, s.fixed, nil
}

// SortByName sorts parameters in the order of a checkpoint.
func SortByName(parameters []torch.Parameter) {
	slices.SortFunc(parameters, func(a, b torch.Parameter) int { return strings.Compare(a.Name, b.Name) })
}

// Free frees parameters. It must be called inside Do.
func Free(parameters []torch.Parameter) {
	for _, p := range parameters {
		p.Tensor.Free()
	}
}

// check returns how to read a stored tensor that should have a given shape.
func check(t safetensors.Tensor, shape []int64) (torch.DType, error) {
	if !slices.Equal(t.Shape, shape) {
		return 0, fmt.Errorf("tensor %s has shape %v, want %v", t.Name, t.Shape, shape)
	}
	if err := t.Validate(); err != nil {
		return 0, err
	}
	dtype, ok := dtypes[t.DType]
	if !ok {
		return 0, fmt.Errorf("tensor %s is %s, want F32, BF16 or F16", t.Name, t.DType)
	}
	return dtype, nil
}

// Copy overwrites the parameters with a checkpoint's tensors, which must match them exactly. After
// an error nothing has changed. It must be called inside Do with gradients off.
func Copy(s *torch.Scope, parameters []torch.Parameter, tensors []safetensors.Tensor) error {
	byName := make(map[string]safetensors.Tensor, len(tensors))
	for _, t := range tensors {
		byName[t.Name] = t
	}
	if len(byName) != len(tensors) || len(tensors) != len(parameters) {
		return fmt.Errorf("%w: %d tensors, %d with distinct names, for %d parameters",
			ErrMismatch, len(tensors), len(byName), len(parameters))
	}
	for _, p := range parameters {
		stored, ok := byName[p.Name]
		if !ok {
			return fmt.Errorf("%w: tensor %s is missing", ErrMismatch, p.Name)
		}
		if _, err := check(stored, p.Tensor.Shape()); err != nil {
			return fmt.Errorf("%w: %w", ErrMismatch, err)
		}
	}
	for _, p := range parameters {
		stored := byName[p.Name]
		err := s.Sub(func(s *torch.Scope) error {
			p.Tensor.Detach().CopyFrom(s.FromBytes(stored.Data, dtypes[stored.DType], stored.Shape...))
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Refresh overwrites the parameters with the parameters of another engine's model of the same
// config. It must be called inside Do with gradients off. No other code may use the tensors in from
// during the call.
func Refresh(s *torch.Scope, parameters, from []torch.Parameter) error {
	for i, p := range parameters {
		err := s.Sub(func(*torch.Scope) error {
			p.Tensor.Detach().CopyFrom(from[i].Tensor)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Export returns copies of the parameters, as F32, in their order. It must be called inside Do.
func Export(parameters []torch.Parameter) []safetensors.Tensor {
	return export(parameters, (*torch.Tensor).Bytes)
}

// Lend is Export without a copy, for parameters on the CPU. The result changes with the parameters,
// and is valid until they are freed.
func Lend(parameters []torch.Parameter) []safetensors.Tensor {
	return export(parameters, (*torch.Tensor).Memory)
}

func export(parameters []torch.Parameter, data func(t *torch.Tensor) []byte) []safetensors.Tensor {
	out := make([]safetensors.Tensor, len(parameters))
	for i, p := range parameters {
		out[i] = safetensors.Tensor{Name: p.Name, DType: safetensors.F32, Shape: p.Tensor.Shape(), Data: data(p.Tensor)}
	}
	return out
}
