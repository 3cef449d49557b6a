package weights

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/torch"
)

// ErrMismatch says that a checkpoint's tensors are not those of the model.
var ErrMismatch = errors.New("weights do not fit the model")

// dtypes are the element types that weights may have in a checkpoint.
var dtypes = map[safetensors.DType]torch.DType{
	safetensors.F32:  torch.F32,
	safetensors.BF16: torch.BF16,
	safetensors.F16:  torch.F16,
}

// Source hands out the tensors of a checkpoint as f32 parameters. It is used inside one
// Do; parameters that were taken are freed again by Close unless it succeeds.
type Source struct {
	scope  *torch.Scope
	byName map[string]safetensors.Tensor
	shared map[string]*torch.Tensor // of NewTwin and NewCopy: what there is instead of byName
	apart  bool                     // of NewCopy: shared is copied
	taken  []torch.Parameter
	fixed  []torch.Parameter
	err    error // the first one
}

// NewSource starts taking from tensors.
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

// NewTwin starts taking the weights of a model that exists, parameters and buffers, for
// another engine of its device: the same memory, with gradients of its own.
func NewTwin(s *torch.Scope, existing []torch.Parameter) *Source {
	src := &Source{scope: s, shared: make(map[string]*torch.Tensor, len(existing))}
	for _, p := range existing {
		src.shared[p.Name] = p.Tensor
	}
	return src
}

// NewCopy starts taking copies of the weights of a model that exists, parameters and
// buffers, for an engine of any device.
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

// Take makes the parameter name of that shape. On a missing or unfit tensor it returns
// nil and Close the error.
func (s *Source) Take(name string, shape ...int64) *torch.Tensor {
	t := s.read(s.scope, name, shape)
	if t == nil {
		return nil
	}
	return s.parameter(name, t)
}

// TakeBuffer makes the f32 tensor name of that shape, which is not trained; as Take
// otherwise. CloseWithBuffers lists it.
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

// TakeTogether makes several parameters of the same number of columns that lie one behind
// the other in memory. On a missing or unfit tensor it returns nils and Close the error.
func (s *Source) TakeTogether(wanted ...Matrix) []*torch.Tensor {
	out := make([]*torch.Tensor, len(wanted))
	_ = s.scope.Sub(func(inner *torch.Scope) error { // frees the parts
		if s.shared != nil && !s.apart { // they lie together already
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
			return s.err // Close tells
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

// Close returns all parameters taken, sorted by name. With an error, or when tensors are
// left over, it frees them.
func (s *Source) Close() ([]torch.Parameter, error) {
	parameters, _, err := s.CloseWithBuffers()
	return parameters, err
}

// CloseWithBuffers is Close for a model that took buffers, which it returns likewise.
func (s *Source) CloseWithBuffers() (parameters, buffers []torch.Parameter, err error) {
	if s.err == nil && len(s.byName) > 0 {
		var left []string
		for name := range s.byName {
			left = append(left, name)
		}
		slices.Sort(left)
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

// SortByName puts parameters in the order of a checkpoint.
func SortByName(parameters []torch.Parameter) {
	slices.SortFunc(parameters, func(a, b torch.Parameter) int { return strings.Compare(a.Name, b.Name) })
}

// Free frees parameters. Inside Do only.
func Free(parameters []torch.Parameter) {
	for _, p := range parameters {
		p.Tensor.Free()
	}
}

// check tells how to read a stored tensor that should have that shape.
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

// Copy overwrites the parameters with a checkpoint's tensors, which must be exactly
// those; on an error nothing has changed. Inside Do without gradients only.
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

// Refresh overwrites the parameters with those of another engine's model of the same
// config. Inside Do without gradients only; nobody may use the others meanwhile.
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

// Export copies the parameters out, as F32, in their order. Inside Do only.
func Export(parameters []torch.Parameter) []safetensors.Tensor {
	return export(parameters, (*torch.Tensor).Bytes)
}

// Lend is Export without a copy, of parameters on the CPU: what it returns changes with them, and ends with them.
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
