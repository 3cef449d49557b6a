// Package safetensors reads and writes Hugging Face's safetensors file format: eight bytes of
// little-endian header length, a JSON header, and the bytes of the tensors.
//
// The main type is Tensor. Its Data is the little-endian, row-major bytes of the elements, which
// the package never changes.
//
//	tensors, metadata, err := safetensors.Read(path)
//	err = safetensors.Write(path, tensors, metadata)
//
// Read, and ReadHeader, which reads no data, accept only files that the specification allows, so a
// file has one meaning. Names are unique, data offsets cover the data without holes or overlaps,
// and every shape fits its bytes. All sizes are checked before memory is allocated.
//
// Write produces the byte order of the reference implementation (wider types first, then by name,
// header padded to eight bytes), so equal tensors give equal files. It replaces a file atomically:
// a reader sees the old file or the new one, never a part.
package safetensors
