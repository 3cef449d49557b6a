// Package safetensors reads and writes the safetensors file format of Hugging Face:
// eight bytes of little-endian header length, a JSON header, and the tensors' bytes.
//
// Read and ReadHeader, which reads no data, are strict: they accept what the specification
// allows and nothing else, so a file has one meaning. Names are unique, the data offsets cover
// the data without holes or overlaps, every shape fits its bytes. All sizes are checked
// before memory is taken for them.
//
// Write produces the byte order of the reference implementation (wider types first, then by
// name, header padded to eight bytes), so that equal tensors give equal files. It replaces a
// file in one step: a reader sees the old file or the new one, never a part.
//
// The main type is Tensor. Its Data is the little-endian, row-major bytes of the
// elements and goes through the package unchanged.
package safetensors
