package driver

// code is what a library's number means.
type code struct {
	code int
	name string
	text string
	kind error
	hint string
}

// CUDA is the error of a driver call that returned a number other than 0.
func CUDA(call string, n int) *Error { return lookup(cudaCodes, call, n, "CUDA_ERROR_?") }

// CUBLAS is the error of a cuBLAS call that returned a status other than 0.
func CUBLAS(call string, n int) *Error { return lookup(cublasCodes, call, n, "CUBLAS_STATUS_?") }

// NCCL is the error of an NCCL call that returned a result other than 0.
func NCCL(call string, n int) *Error { return lookup(ncclCodes, call, n, "nccl?") }

func lookup(codes []code, call string, n int, unknown string) *Error {
	for _, c := range codes {
		if c.code == n {
			return &Error{Call: call, Code: n, Name: c.name, Text: c.text, Kind: c.kind, Hint: c.hint}
		}
	}
	return &Error{Call: call, Code: n, Name: unknown, Text: "an error that Krait does not know"}
}

// Numbers of the CUDA driver that Krait's own code compares with, or gives.
const (
	InvalidValue        = 1
	OutOfMemory         = 2
	DeviceUnavailable   = 46
	InvalidDevice       = 101
	InvalidContext      = 201
	PeerUnsupported     = 217
	InvalidPTX          = 218
	InvalidHandle       = 400
	IllegalState        = 401
	NotFound            = 500
	NotReady            = 600
	IllegalAddress      = 700
	LaunchOutOfResource = 701
	LaunchTimeout       = 702
	PeerEnabled         = 704
	Misaligned          = 716
	LaunchFailed        = 719
	CaptureUnsupported  = 900
	CaptureInvalidated  = 901
	CaptureMerge        = 902
	CaptureUnmatched    = 903
	CaptureUnjoined     = 904
	CaptureIsolation    = 905
	CapturedEvent       = 907
	CaptureWrongThread  = 908
)

const (
	hintMemory  = "Use a smaller batch, fewer state slots or more ranks, or end what else uses the device (nvidia-smi lists it)."
	hintDriver  = "Install NVIDIA's driver for Linux, version 525 or newer; nvidia-smi shows whether it runs. The CUDA toolkit is not needed."
	hintFault   = "A kernel did what it must not. Restart the process: CUDA gives it no GPU any more. NVIDIA's compute-sanitizer finds the place; please report it."
	hintLost    = "The device does not answer. nvidia-smi and the kernel's log (dmesg, lines with Xid) say more; it may need a reset or a reboot."
	hintBind    = "Lock the thread (runtime.LockOSThread) and call Bind on it first."
	hintCapture = "While a stream is captured, its thread may not allocate, free or wait, and must copy with pinned memory only."
	hintNCCL    = "All ranks must make the same calls with the same counts, in the same order. NCCL_DEBUG=WARN makes NCCL say more."
)

var cudaCodes = []code{
	{1, "CUDA_ERROR_INVALID_VALUE", "a parameter is wrong", nil, ""},
	{2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory", ErrOutOfMemory, hintMemory},
	{3, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialized", ErrNoDriver, hintDriver},
	{4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down", ErrDeviceLost, hintLost},
	{34, "CUDA_ERROR_STUB_LIBRARY", "the libcuda found is a stub, made for linking only", ErrNoDriver, "Take the folder with the stub (…/lib64/stubs) out of LD_LIBRARY_PATH. " + hintDriver},
	{46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is not available", ErrDeviceLost, hintLost},
	{100, "CUDA_ERROR_NO_DEVICE", "there is no device", ErrNoDriver, "If there should be one: nvidia-smi shows it; CUDA_VISIBLE_DEVICES must not hide it; a container needs --gpus."},
	{101, "CUDA_ERROR_INVALID_DEVICE", "there is no such device", nil, "nvidia-smi lists the devices; CUDA_VISIBLE_DEVICES may hide some."},
	{200, "CUDA_ERROR_INVALID_IMAGE", "the module is not valid", nil, ""},
	{201, "CUDA_ERROR_INVALID_CONTEXT", "the context is not current on this thread", nil, hintBind},
	{209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the module has no code for this device", nil, "The kernels were not made for a device this old."},
	{214, "CUDA_ERROR_ECC_UNCORRECTABLE", "the device's memory had an error that could not be corrected", ErrDeviceLost, hintLost},
	{217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "the devices cannot reach each other's memory", nil, ""},
	{218, "CUDA_ERROR_INVALID_PTX", "the PTX does not compile", nil, ""},
	{220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "NVLink had an error that could not be corrected", ErrDeviceLost, hintLost},
	{221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "the driver's PTX compiler is missing", ErrNoDriver, "libnvidia-ptxjitcompiler.so.1 comes with the driver; a container may lack it (NVIDIA_DRIVER_CAPABILITIES=compute,utility)."},
	{222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX is newer than the driver", ErrNoDriver, hintDriver},
	{301, "CUDA_ERROR_FILE_NOT_FOUND", "a file is missing", nil, ""},
	{304, "CUDA_ERROR_OPERATING_SYSTEM", "the operating system refused", nil, "For pinned memory, ulimit -l may be too low."},
	{400, "CUDA_ERROR_INVALID_HANDLE", "the object is closed, or of another context", nil, ""},
	{401, "CUDA_ERROR_ILLEGAL_STATE", "not allowed in this state", nil, ""},
	{500, "CUDA_ERROR_NOT_FOUND", "no such name", nil, ""},
	{600, "CUDA_ERROR_NOT_READY", "not done yet", nil, ""},
	{700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel used memory that it must not", ErrKernelFault, hintFault},
	{701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch needs more than the device has", nil, "The kernel's block is too large for its registers or shared memory, or its parameters are of the wrong size."},
	{702, "CUDA_ERROR_LAUNCH_TIMEOUT", "a kernel ran too long", ErrKernelFault, hintFault},
	{704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is enabled already", nil, ""},
	{705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled", nil, "Call EnablePeer first."},
	{709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context is closed", nil, ""},
	{710, "CUDA_ERROR_ASSERT", "an assertion in a kernel failed", ErrKernelFault, hintFault},
	{714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel broke its stack", ErrKernelFault, hintFault},
	{715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel has an instruction that the device does not know", ErrKernelFault, hintFault},
	{716, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel used an address that is not aligned", ErrKernelFault, hintFault},
	{717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used memory of the wrong kind", ErrKernelFault, hintFault},
	{718, "CUDA_ERROR_INVALID_PC", "a kernel jumped to nowhere", ErrKernelFault, hintFault},
	{719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed", ErrKernelFault, hintFault},
	{721, "CUDA_ERROR_CONTAINED", "the device had an error", ErrDeviceLost, hintLost},
	{800, "CUDA_ERROR_NOT_PERMITTED", "not permitted", nil, ""},
	{801, "CUDA_ERROR_NOT_SUPPORTED", "the device or system does not support that", nil, ""},
	{802, "CUDA_ERROR_SYSTEM_NOT_READY", "the system is not ready", ErrNoDriver, "Machines with NVSwitch need nvidia-fabricmanager to run, of the driver's version."},
	{803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "libcuda and the kernel's driver are of different versions", ErrNoDriver, "After an update of the driver, reboot; in a container, use the host's libcuda."},
	{804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "this device does not allow a newer libcuda than its driver", ErrNoDriver, hintDriver},
	{900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not allowed while a stream is captured", nil, hintCapture},
	{901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture was broken by an earlier error", nil, hintCapture},
	{902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "two captures would become one", nil, ""},
	{903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture did not begin in this stream", nil, ""},
	{904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a stream of the capture was not joined", nil, "Record an event at the end of every stream that took part, and let the stream where the capture began wait for it."},
	{905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "captured work would depend on work outside", nil, "A captured stream may only wait for events recorded in the same capture."},
	{906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "captured work would depend on the default stream", nil, ""},
	{907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capture", nil, "Record it again outside the capture before it is waited for."},
	{908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture began on another thread", nil, ""},
	{999, "CUDA_ERROR_UNKNOWN", "an error without a name", nil, "The kernel's log (dmesg, lines with Xid or NVRM) may say more."},
}

var cublasCodes = []code{
	{1, "CUBLAS_STATUS_NOT_INITIALIZED", "cuBLAS could not start", nil, "Often there is no memory left for it, or cuBLAS is newer than the driver."},
	{3, "CUBLAS_STATUS_ALLOC_FAILED", "out of memory", ErrOutOfMemory, hintMemory},
	{7, "CUBLAS_STATUS_INVALID_VALUE", "a parameter is wrong", nil, ""},
	{8, "CUBLAS_STATUS_ARCH_MISMATCH", "cuBLAS cannot do that on this device", nil, ""},
	{11, "CUBLAS_STATUS_MAPPING_ERROR", "memory could not be reached", nil, ""},
	{13, "CUBLAS_STATUS_EXECUTION_FAILED", "a kernel could not be launched", ErrKernelFault, hintFault},
	{14, "CUBLAS_STATUS_INTERNAL_ERROR", "an error inside cuBLAS", nil, ""},
	{15, "CUBLAS_STATUS_NOT_SUPPORTED", "cuBLAS cannot do that", nil, ""},
	{16, "CUBLAS_STATUS_LICENSE_ERROR", "cuBLAS lacks a license", nil, ""},
}

// Numbers of NCCL.
const (
	NCCLInvalidArgument = 4
	NCCLInvalidUsage    = 5
	NCCLRemoteError     = 6
)

var ncclCodes = []code{
	{1, "ncclUnhandledCudaError", "a call of NCCL to CUDA failed", nil, "NCCL_DEBUG=WARN makes NCCL say which."},
	{2, "ncclSystemError", "a call of NCCL to the system failed", nil, "In a container, /dev/shm may be too small (--shm-size). NCCL_DEBUG=WARN makes NCCL say more."},
	{3, "ncclInternalError", "an error inside NCCL", nil, "NCCL_DEBUG=WARN makes NCCL say more."},
	{4, "ncclInvalidArgument", "a parameter is wrong", nil, ""},
	{5, "ncclInvalidUsage", "NCCL was used wrongly", nil, hintNCCL},
	{6, "ncclRemoteError", "another rank failed", nil, ""},
	{7, "ncclInProgress", "not done yet", nil, ""},
}
