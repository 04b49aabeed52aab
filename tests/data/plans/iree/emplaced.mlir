func.func @m(%a0: tensor<16x16xf32>, %a1: tensor<16x16xf32>) -> tensor<16x16xf32> {
  %c0 = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<16x16xf32>
  %f = linalg.fill ins(%c0 : f32) outs(%e : tensor<16x16xf32>) -> tensor<16x16xf32>
  %v = linalg.matmul ins(%a0, %a1 : tensor<16x16xf32>, tensor<16x16xf32>) outs(%f : tensor<16x16xf32>) -> tensor<16x16xf32>
  %t = linalg.transpose ins(%v : tensor<16x16xf32>) outs(%e : tensor<16x16xf32>) permutation = [1, 0]
  %s = tensor.extract_slice %t[0, 0] [8, 16] [1, 1] : tensor<16x16xf32> to tensor<8x16xf32>
  %r = tensor.insert_slice %s into %v[0, 0] [8, 16] [1, 1] : tensor<8x16xf32> into tensor<16x16xf32>
  return %r : tensor<16x16xf32>
}
