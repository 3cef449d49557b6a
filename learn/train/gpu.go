package train

import (
	"errors"
	"log/slog"
	"sync"

	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/torch"
	layers "github.com/psyche-go/psyche/learn/torch/cuda"
)

// gpu is a CUDA device with compiled kernels. All trainers of the process share it, because libtorch
// launches the kernels of layers for all of them.
type gpu struct {
	ordinal torch.Device
	device  *cuda.Device
	layers  *cuda.Program // nil: libtorch's operations compute layers
	users   int
}

// gpus are the devices in use.
var gpus struct {
	sync.Mutex
	of map[torch.Device]*gpu
}

// openGPU opens a device and makes libtorch use kernels for parts of layers. If these cannot be
// compiled, it only logs that. The caller must close the result.
func openGPU(ordinal torch.Device, open func(ordinal int) (*cuda.Device, error), log *slog.Logger) (*gpu, error) {
	gpus.Lock()
	defer gpus.Unlock()
	g := gpus.of[ordinal]
	if g == nil {
		device, err := open(int(ordinal))
		if err != nil {
			return nil, err
		}
		g = &gpu{ordinal: ordinal, device: device}
		if g.layers, err = device.Compile(layers.Source, layers.Names(), layers.Threads); err != nil {
			log.Warn("the kernels of layers cannot run on the device: libtorch's operations are used instead", "device", ordinal.String(), "because", err)
			g.layers = nil
		} else {
			function, context := g.layers.Launcher()
			torch.SetKernels(ordinal, function, context)
		}
		if gpus.of == nil {
			gpus.of = map[torch.Device]*gpu{}
		}
		gpus.of[ordinal] = g
	}
	g.users++
	return g, nil
}

// close closes the device after its last user has closed it. No operation of this user may run.
func (g *gpu) close() error {
	gpus.Lock()
	defer gpus.Unlock()
	if g.users--; g.users > 0 {
		return nil
	}
	delete(gpus.of, g.ordinal)
	var err error
	if g.layers != nil {
		torch.SetKernels(g.ordinal, nil, nil)
		err = g.layers.Close()
	}
	return errors.Join(err, g.device.Close())
}
