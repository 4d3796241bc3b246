#include "kernels/rms_norm_ffi.h"

#include "kernels/ffi.h"
#include "kernels/rms_norm.h"

namespace ulmus::kernels {
namespace {

Status CheckType(const char* call, const char* name, const ffi::AnyBuffer& buffer,
                 const TensorType& expected) {
  if (DTypeOf(buffer.element_type()) == expected.dtype && ShapeOf(buffer) == expected.shape)
    return Status();
  return InvalidArgumentError("{}: {} is {}, expected {}", call, name, TypeText(buffer),
                              expected.ToString());
}

// The type of x, which must have a last axis and a dtype the kernel knows.
Result<TensorType> CheckedTypeOf(const char* call, const ffi::AnyBuffer& x) {
  const std::optional<DType> dtype = DTypeOf(x.element_type());
  const Shape shape = ShapeOf(x);
  if ((dtype != DType::kF32 && dtype != DType::kBF16) || shape.rank() == 0) {
    return InvalidArgumentError("{}: x is {}, expected f32[..., width] or bf16[..., width]", call,
                                TypeText(x));
  }
  return TensorType{*dtype, shape};
}

template <class T>
std::span<T> Elements(const ffi::AnyBuffer& buffer) {
  return {static_cast<T*>(buffer.untyped_data()), buffer.element_count()};
}

Status Forward(Workers& workers, const ffi::AnyBuffer& x, const ffi::AnyBuffer& scale, float eps,
               const ffi::AnyBuffer& y) {
  const char* call = "ulmus_rms_norm";
  const TensorType type = TRY(CheckedTypeOf(call, x));
  TRY(CheckType(call, "scale", scale, {DType::kF32, {type.shape.dim(-1)}}));
  TRY(CheckType(call, "the result", y, type));
  const auto run = [&]<class T>(T) {
    RmsNorm(workers, Elements<const T>(x), Elements<const float>(scale), eps, Elements<T>(y));
  };
  type.dtype == DType::kF32 ? run(float()) : run(BF16());
  return Status();
}

Status Backward(Workers& workers, const ffi::AnyBuffer& x, const ffi::AnyBuffer& scale,
                const ffi::AnyBuffer& ct, float eps, const ffi::AnyBuffer& dx,
                const ffi::AnyBuffer& dscale) {
  const char* call = "ulmus_rms_norm_backward";
  const TensorType type = TRY(CheckedTypeOf(call, x));
  const TensorType scale_type{DType::kF32, {type.shape.dim(-1)}};
  TRY(CheckType(call, "scale", scale, scale_type));
  TRY(CheckType(call, "ct", ct, type));
  TRY(CheckType(call, "result dx", dx, type));
  TRY(CheckType(call, "result dscale", dscale, scale_type));
  const auto run = [&]<class T>(T) {
    RmsNormBackward(workers, Elements<const T>(x), Elements<const float>(scale),
                    Elements<const T>(ct), eps, Elements<T>(dx), Elements<float>(dscale));
  };
  type.dtype == DType::kF32 ? run(float()) : run(BF16());
  return Status();
}

ffi::Error ForwardHandler(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer scale,
                          ffi::Result<ffi::AnyBuffer> y, float eps) {
  PoolWorkers workers(std::move(pool));
  return ToFfiError(Forward(workers, x, scale, eps, *y));
}

ffi::Error BackwardHandler(ffi::ThreadPool pool, ffi::AnyBuffer x, ffi::AnyBuffer scale,
                           ffi::AnyBuffer ct, ffi::Result<ffi::AnyBuffer> dx,
                           ffi::Result<ffi::AnyBuffer> dscale, float eps) {
  PoolWorkers workers(std::move(pool));
  return ToFfiError(Backward(workers, x, scale, ct, eps, *dx, *dscale));
}

XLA_FFI_DEFINE_HANDLER(kForward, ForwardHandler,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<float>("eps"));
XLA_FFI_DEFINE_HANDLER(kBackward, BackwardHandler,
                       ffi::Ffi::Bind()
                           .Ctx<ffi::ThreadPool>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Arg<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Ret<ffi::AnyBuffer>()
                           .Attr<float>("eps"));

}  // namespace

CustomCallHandler RmsNormCall() { return {"ulmus_rms_norm", PortableHandler<kForward>(), 1}; }
CustomCallHandler RmsNormBackwardCall() {
  return {"ulmus_rms_norm_backward", PortableHandler<kBackward>(), 1};
}

}  // namespace ulmus::kernels
