"""The names of the ATen operations that a program may have, by group: those to which `torch.export` traces models.

A name includes the in-place form with a final underscore. An operation is on the list if two things hold: a predictor
needs it, and its kernel checks the indices and sizes that it gets. Programs come from strangers, so an operation whose
kernel trusts its arguments could read or write outside of its arrays; such operations are not on the list, although
PyTorch's own layers use some of them correctly (`fractional_max_pool2d`, `_grouped_mm`, `max_unpool2d`, `as_strided`,
`_unsafe_index`, all `*_backward`).
"""

from __future__ import annotations

_BY_GROUP = {
    "arithmetic": """
        abs absolute add addcdiv addcmul angle ceil clamp clamp_max clamp_min clip complex conj conj_physical copysign
        deg2rad div divide exp exp2 expm1 fix float_power floor floor_divide fmax fmin fmod frac heaviside hypot imag
        ldexp lerp log log10 log1p log2 logaddexp logaddexp2 logit maximum minimum mul multiply nan_to_num neg negative
        polar positive pow rad2deg real reciprocal remainder resolve_conj resolve_neg round rsqrt rsub sgn sign signbit
        sqrt square sub subtract true_divide trunc view_as_complex view_as_real xlogy""",
    "functions": """
        acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh cos cosh digamma erf
        erfc erfinv i0 lgamma polygamma sigmoid sin sinc sinh special_digamma special_entr special_erf special_erfc
        special_erfcx special_erfinv special_exp2 special_expit special_expm1 special_gammaln special_i0 special_i0e
        special_i1 special_i1e special_log1p special_log_ndtr special_log_softmax special_logit special_logsumexp
        special_ndtr special_ndtri special_psi special_round special_sinc special_softmax special_xlog1py special_xlogy
        tan tanh""",
    "logic and comparison": """
        __and__ __lshift__ __or__ __rshift__ __xor__ all any bitwise_and bitwise_left_shift bitwise_not bitwise_or
        bitwise_right_shift bitwise_xor eq ge greater greater_equal gt isclose isfinite isin isinf isnan isneginf
        isposinf isreal le less less_equal logical_and logical_not logical_or logical_xor lt masked_fill ne not_equal
        where""",
    "activations": """
        celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu log_sigmoid log_softmax _log_softmax mish
        prelu _prelu_kernel relu relu6 rrelu _safe_softmax selu silu softmax _softmax softplus softshrink threshold""",
    "products": """
        addbmm addmm addmv addr baddbmm bilinear bmm cdist chain_matmul conv1d conv2d conv3d conv_transpose1d
        conv_transpose2d conv_transpose3d convolution _convolution _convolution_mode cosine_similarity cross dist dot
        einsum fft_fft fft_fft2 fft_fftn fft_fftshift fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_irfft fft_irfft2
        fft_irfftn fft_rfft fft_rfft2 fft_rfftn ger gru gru_cell inner kron linalg_cross linalg_inv linalg_matmul
        linalg_matrix_norm linalg_multi_dot linalg_norm linalg_vecdot linalg_vector_norm linear lstm lstm_cell matmul mm
        mv outer pairwise_distance pdist rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell scaled_dot_product_attention
        tensordot vdot""",
    "shapes and copies": """
        adjoint alias atleast_1d atleast_2d atleast_3d block_diag broadcast_tensors broadcast_to cartesian_prod cat
        channel_shuffle chunk clone column_stack concat concatenate constant_pad_nd contiguous copy detach diag
        diag_embed diagflat diagonal diagonal_scatter diff dsplit dstack expand expand_as flatten flip fliplr flipud
        hsplit hstack lift_fresh lift_fresh_copy matrix_H meshgrid mH moveaxis movedim mT narrow narrow_copy numpy_T pad
        pad_sequence permute pixel_shuffle pixel_unshuffle ravel repeat repeat_interleave reshape reshape_as roll rot90
        row_stack select select_scatter slice slice_scatter split split_with_sizes squeeze stack _stack swapaxes
        swapdims t tensor_split tile to _to_copy transpose tril triu type_as unbind unflatten unfold unsqueeze view
        view_as vsplit vstack""",
    "look-ups": """
        argwhere bucketize col2im embedding gather im2col index index_add index_copy index_fill index_put index_select
        masked_scatter masked_select nonzero one_hot scatter scatter_add scatter_reduce take take_along_dim""",
    "reductions and sorting": """
        amax amin aminmax argmax argmin argsort count_nonzero cummax cummin cumprod cumsum frobenius_norm kthvalue
        logcumsumexp logsumexp max mean median min mode msort nanmean nanmedian nansum norm prod quantile renorm sort
        std std_mean sum topk trace trapezoid _unique2 unique_consecutive unique_dim var var_mean""",
    "normalization": """
        batch_norm group_norm instance_norm layer_norm _native_batch_norm_legit_no_training native_batch_norm
        norm_except_dim rms_norm _weight_norm""",
    "pooling and resampling": """
        adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool3d
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d affine_grid_generator avg_pool1d avg_pool2d
        avg_pool3d grid_sampler max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
        max_pool3d_with_indices upsample_bicubic2d _upsample_bicubic2d_aa upsample_bilinear2d _upsample_bilinear2d_aa
        upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_trilinear3d""",
    "distances": "huber_loss l1_loss mse_loss smooth_l1_loss",
    "new tensors": """
        arange bernoulli eye fill full full_like linspace logspace new_full new_ones new_zeros ones ones_like rand
        rand_like randint randint_like randn randn_like randperm scalar_tensor tril_indices triu_indices zero zeros
        zeros_like""",
    "dropout, which does nothing in eval mode": """
        alpha_dropout dropout feature_alpha_dropout feature_dropout""",
    "checks and sizes": """
        _assert_async _assert_scalar _assert_tensor_metadata _functional_assert_async _functional_assert_scalar item
        _local_scalar_dense sym_constrain_range sym_constrain_range_for_size sym_size""",
}  # fmt: skip

ALLOWED = frozenset(name for names in _BY_GROUP.values() for name in names.split())
