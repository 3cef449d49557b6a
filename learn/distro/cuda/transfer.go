package cuda

import (
	"encoding/binary"
	"unsafe"
)

// transfer is the staging memory of one call on the device: inputs, which one copy writes, and room
// for outputs after them. An offset is the position of a part in this memory.
type transfer struct {
	device   *Device
	machine  *machine
	image    []byte // the inputs
	pointers []int  // positions in image with offsets that send replaces by addresses
	size     int    // of inputs and outputs; 0 before the first output
}

// alignment of each part, in bytes.
const alignment = 8

func aligned(size int) int { return (size + alignment - 1) &^ (alignment - 1) }

func (d *Device) newTransfer(m *machine) *transfer {
	return &transfer{device: d, machine: m, image: d.image[:0]}
}

// input adds a part with content. It must be called before output.
func (t *transfer) input(content []byte) (offset int) {
	offset = len(t.image)
	t.image = append(t.image, content...)
	t.image = append(t.image, make([]byte, aligned(len(t.image))-len(t.image))...)
	return offset
}

// pointer marks an offset in the inputs, at position, that becomes an address.
func (t *transfer) pointer(position, offset int) {
	binary.NativeEndian.PutUint64(t.image[position:], uint64(offset))
	t.pointers = append(t.pointers, position)
}

// descriptorSize is the size of sentArguments.
const descriptorSize = int(unsafe.Sizeof(sentArguments{}))

// describe writes the descriptor of a result, with a number of places for each chunk and a vote, into the
// inputs. parts are the offsets of the counts, indices, values and, in a result of levels, units.
func (t *transfer) describe(position, places, vote int, parts ...int) {
	copy(t.image[position:], bytesOf([]sentArguments{{places: int32(places), vote: int32(vote)}}))
	for field, offset := range parts {
		t.pointer(position+8*field, offset)
	}
}

// addresses adds the addresses of tensors.
func (t *transfer) addresses(tensors []Tensor) (offset int) {
	list := make([]int64, len(tensors))
	for i, tensor := range tensors {
		list[i] = int64(tensor.Address)
	}
	return t.input(bytesOf(list))
}

// output adds a part without content.
func (t *transfer) output(size int) (offset int) {
	offset = max(t.size, len(t.image))
	t.size = offset + aligned(size)
	return offset
}

// send allocates the memory and writes the inputs.
func (t *transfer) send() error {
	if err := t.device.reserve(t.machine, max(t.size, len(t.image))); err != nil {
		return err
	}
	for _, position := range t.pointers {
		here := t.image[position:]
		binary.NativeEndian.PutUint64(here, uint64(t.at(int(binary.NativeEndian.Uint64(here)))))
	}
	t.device.image = t.image
	return t.machine.write(t.device.staging.at, t.image)
}

// at returns the address of a part. It is valid after send.
func (t *transfer) at(offset int) DevicePointer {
	return t.device.staging.at + DevicePointer(offset)
}

// receive waits for the kernels and reads a part.
func (t *transfer) receive(to []byte, offset int) error {
	if err := t.machine.wait(); err != nil {
		return err
	}
	return t.machine.read(to, t.at(offset))
}

// bytesOf returns the memory of a slice. Machines with CUDA devices are little-endian, like the
// devices.
func bytesOf[T float32 | float64 | uint8 | uint16 | int64 | planArguments | sentArguments | [32]byte](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}
