"""Operations that are free by definition, grouped by the reason (ALMA paper, section 3: Comp counts multiply-adds).

The namespace `aten` is the default. A name includes all overloads and the in-place, `out=`, `_copy` and `_foreach_`
forms of the operation. A free operation does no more products than it has elements to read or write; a few operations
contract two operands in certain calls, which are charged (`alma_env.metering.costs.conditional_formulas`).
"""

FREE: dict[str, str] = {
    "elementwise arithmetic, including every operation that PyTorch tags as `pointwise`, contracts nothing": """
        abs add _add_relu affine_grid_generator affine_grid_generator_backward __and__ bitwise_and
        bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor celu complex _conj_physical copysign
        cudnn_affine_grid_generator cudnn_affine_grid_generator_backward div elu eq
        _fake_quantize_learnable_per_channel_affine _fake_quantize_learnable_per_channel_affine_backward
        _fake_quantize_learnable_per_tensor_affine _fake_quantize_learnable_per_tensor_affine_backward
        fake_quantize_per_channel_affine_cachemask fake_quantize_per_tensor_affine_cachemask
        _fake_quantize_per_tensor_affine_cachemask_tensor_qparams floor_divide _fused_moving_avg_obs_fq_helper
        _fused_moving_avg_obs_fq_helper_functional gcd ge gt heaviside __iand__ __ilshift__ __ior__ __irshift__
        isclose isfinite isinf isnan __ixor__ lcm ldexp le linalg_cross __lshift__ lt masked_fill mul ne __or__
        polar put remainder __rshift__ rsub sub _transform_bias_rescale_qkv true_divide where xlogy __xor__""",
    "activations are elementwise": """
        elu_backward gelu gelu_backward glu glu_backward glu_backward_jvp glu_jvp hardshrink hardshrink_backward
        hardsigmoid hardsigmoid_backward hardswish hardswish_backward hardtanh hardtanh_backward leaky_relu
        leaky_relu_backward log_sigmoid_backward log_sigmoid_forward mish mish_backward prelu _prelu_kernel
        _prelu_kernel_backward relu relu6 rrelu rrelu_with_noise rrelu_with_noise_backward
        rrelu_with_noise_functional selu sigmoid_backward silu silu_backward softplus softplus_backward
        softshrink softshrink_backward tanh_backward threshold threshold_backward""",
    "the gates of a recurrent cell are elementwise, its matrix products are charged separately": """
        _thnn_differentiable_gru_cell_backward _thnn_differentiable_lstm_cell_backward _thnn_fused_gru_cell
        _thnn_fused_gru_cell_backward _thnn_fused_lstm_cell _thnn_fused_lstm_cell_backward_impl""",
    "views, reshapes, copies and casts move data": """
        alias as_strided as_strided_scatter block_diag broadcast_to _cast_Byte cat ccol_indices channel_shuffle
        chunk _chunk_cat clone _coalesced col_indices concat _conj constant_pad_nd contiguous copy _copy_from
        _copy_from_and_resize copy_sparse_to_sparse crow_indices _cudnn_rnn_flatten_weight detach diag_embed
        diagonal diagonal_backward diagonal_scatter expand flip from_file _fw_primal indices _indices
        _jagged_to_padded_dense_forward _lazy_clone lift lift_fresh lu_unpack _make_dual mkldnn_reorder_conv2d_weight
        mkldnn_reorder_conv3d_weight _mkldnn_reshape _mkldnn_transpose narrow_copy native_channel_shuffle
        _neg_view _nested_compute_contiguous_strides_offsets _nested_from_padded
        _nested_from_padded_and_nested_example _nested_from_padded_tensor _nested_get_jagged_dummy
        _nested_get_lengths _nested_get_max_seqlen _nested_get_min_seqlen _nested_get_offsets
        _nested_get_ragged_idx _nested_get_values _nested_select_backward _nested_tensor_from_mask
        _nested_tensor_from_mask_left_aligned _nested_tensor_from_tensor_list _nested_view_from_buffer
        _nested_view_from_jagged _pack_padded_sequence _pack_padded_sequence_backward pad _pad_packed_sequence
        pad_sequence _padded_dense_to_jagged_forward permute _pin_memory pixel_shuffle pixel_unshuffle
        record_stream reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward
        reflection_pad3d reflection_pad3d_backward repeat repeat_interleave replication_pad1d
        replication_pad1d_backward replication_pad2d replication_pad2d_backward replication_pad3d
        replication_pad3d_backward _reshape_alias _reshape_copy resize resize_as resize_as_sparse _resize_output
        roll rot90 row_indices select select_backward select_scatter set slice slice_backward slice_inverse
        slice_scatter _sparse_broadcast_to split split_with_sizes squeeze _stack stack t _to_copy _to_dense
        to_mkldnn to_padded_tensor _to_sparse _to_sparse_bsc _to_sparse_bsr _to_sparse_csc _to_sparse_csr
        transpose unbind unfold unfold_backward unsafe_chunk unsafe_split unsafe_split_with_sizes _unsafe_view
        unsqueeze _values values view view_as view_as_complex view_as_real inductor::_reinterpret_tensor
        inductor::accumulate_grad_ inductor::resize_storage_bytes_ mkl::_mkl_reorder_linear_weight
        mkldnn::_reorder_convolution_transpose_weight mkldnn::_reorder_convolution_weight
        mkldnn::_reorder_linear_weight mkldnn::_reorder_mkldnn_rnn_layer_weight prims::as_strided
        prims::broadcast_in_dim prims::clone prims::collapse prims::collapse_view prims::convert_element_type
        prims::copy_strided prims::copy_to prims::device_put prims::item prims::rev prims::split_dim
        prims::view_of prims::view_of_dtype""",
    "quantising single values is a cast": """
        _convert_indices_from_coo_to_csr _convert_indices_from_csr_to_coo dequantize _empty_affine_quantized
        _empty_per_channel_affine_quantized int_repr _make_per_channel_quantized_tensor
        _make_per_tensor_quantized_tensor q_per_channel_axis q_per_channel_scales q_per_channel_zero_points
        q_scale q_zero_point qscheme quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic""",
    "queries about a tensor (its size, its layout, whether it has a value) compute nothing on its elements": """
        allclose _assert_async _assert_scalar _assert_tensor_metadata _debug_has_internal_overlap dense_dim dim
        _dimI _dimV equal _functional_assert_async _functional_assert_scalar _functional_sym_constrain_range
        _functional_sym_constrain_range_for_size _fused_sdp_choice _has_same_storage_numel _is_all_true
        _is_any_true is_coalesced is_contiguous is_non_overlapping_and_dense is_pinned is_same_size is_set_to
        is_strides_like_format item _linalg_check_errors _local_scalar_dense _make_dep_token _nested_tensor_size
        _nested_tensor_storage_offsets _nested_tensor_strides _nnz numel _print size sparse_dim storage_offset
        stride sym_constrain_range sym_constrain_range_for_size sym_is_contiguous sym_numel sym_size
        sym_storage_offset sym_stride _use_cudnn_ctc_loss _use_miopen_ctc_loss
        _validate_compressed_sparse_indices prim::device prim::layout prims::_make_token prims::_sink_tokens
        profiler::_record_function_enter profiler::_record_function_enter_new profiler::_record_function_exit""",
    "indexing, gathering and scattering move data; embeddings are look-ups": """
        _coalesce col2im embedding embedding_backward _embedding_bag _embedding_bag_backward
        _embedding_bag_dense_backward _embedding_bag_forward_only _embedding_bag_per_sample_weights_backward
        embedding_dense_backward embedding_renorm gather gather_backward im2col index index_add index_copy
        index_fill index_put _index_put_impl index_reduce index_select index_select_backward masked_scatter
        masked_scatter_backward masked_select masked_select_backward nonzero nonzero_static scatter scatter_add
        scatter_reduce sparse_mask _sparse_mask_projection _spdiags take take_along_dim tril triu _unique
        _unique2 unique_consecutive unique_dim unique_dim_consecutive _unsafe_index _unsafe_index_put
        _unsafe_masked_index _unsafe_masked_index_put_accumulate""",
    "sorting and searching compare": """
        argmax argmin argsort bincount bucketize count_nonzero histc histogram _histogramdd_bin_edges
        _histogramdd_from_bin_cts _histogramdd_from_bin_tensors isin kthvalue median mode msort nanmedian
        searchsorted sort topk""",
    "reductions and scans add or compare elements of one operand": """
        all amax amin aminmax _aminmax any cummax _cummax_helper cummaxmin_backward cummin _cummin_helper
        cumprod cumsum dist hash_tensor linalg__powsum linalg_vector_norm logcumsumexp _logcumsumexp logsumexp
        max mean min nanmean nansum native_norm _nested_sum_backward norm powsum prod renorm segment_reduce
        _segment_reduce_backward _sparse_csr_prod _sparse_csr_sum _sparse_sum _sparse_sum_backward std std_mean
        sum trace value_selecting_reduction_backward var var_mean prims::amax prims::amin prims::prod prims::sum
        prims::var prims::xor_sum""",
    "normalisation is elementwise work around a reduction": """
        batch_norm batch_norm_backward batch_norm_backward_elemt batch_norm_backward_reduce batch_norm_elemt
        batch_norm_gather_stats batch_norm_gather_stats_with_counts _batch_norm_impl_index _batch_norm_no_update
        batch_norm_stats batch_norm_update_stats _batch_norm_with_update _batch_norm_with_update_functional
        cudnn_batch_norm cudnn_batch_norm_backward _fused_rms_norm _fused_rms_norm_backward group_norm
        instance_norm layer_norm log_softmax _log_softmax _log_softmax_backward_data _masked_softmax
        _masked_softmax_backward miopen_batch_norm miopen_batch_norm_backward native_batch_norm
        native_batch_norm_backward _native_batch_norm_legit _native_batch_norm_legit_functional
        _native_batch_norm_legit_no_training native_group_norm native_group_norm_backward native_layer_norm
        native_layer_norm_backward _nested_tensor_softmax_with_shape rms_norm _safe_softmax softmax _softmax
        _softmax_backward_data _weight_norm_interface _weight_norm_interface_backward""",
    "pooling reduces a window, resampling weighs a fixed number of neighbours": """
        adaptive_avg_pool1d _adaptive_avg_pool2d adaptive_avg_pool2d _adaptive_avg_pool2d_backward
        adaptive_avg_pool3d _adaptive_avg_pool3d adaptive_avg_pool3d_backward _adaptive_avg_pool3d_backward
        adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool2d_backward adaptive_max_pool3d
        adaptive_max_pool3d_backward avg_pool1d avg_pool2d avg_pool2d_backward avg_pool3d avg_pool3d_backward
        cudnn_grid_sampler cudnn_grid_sampler_backward fractional_max_pool2d fractional_max_pool2d_backward
        fractional_max_pool3d fractional_max_pool3d_backward grid_sampler grid_sampler_2d
        grid_sampler_2d_backward _grid_sampler_2d_cpu_fallback _grid_sampler_2d_cpu_fallback_backward
        grid_sampler_3d grid_sampler_3d_backward max_pool1d max_pool1d_with_indices max_pool2d
        max_pool2d_backward max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d
        max_pool3d_with_indices max_pool3d_with_indices_backward max_unpool2d max_unpool3d
        mkldnn_adaptive_avg_pool2d mkldnn_adaptive_avg_pool2d_backward mkldnn_max_pool2d
        mkldnn_max_pool2d_backward mkldnn_max_pool3d mkldnn_max_pool3d_backward upsample_bicubic2d
        _upsample_bicubic2d_aa _upsample_bicubic2d_aa_backward upsample_bicubic2d_backward upsample_bilinear2d
        _upsample_bilinear2d_aa _upsample_bilinear2d_aa_backward upsample_bilinear2d_backward
        _upsample_lanczos2d_aa _upsample_lanczos2d_aa_backward upsample_linear1d upsample_linear1d_backward
        upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d upsample_nearest2d_backward
        upsample_nearest3d upsample_nearest3d_backward _upsample_nearest_exact1d
        _upsample_nearest_exact1d_backward _upsample_nearest_exact2d _upsample_nearest_exact2d_backward
        _upsample_nearest_exact3d _upsample_nearest_exact3d_backward upsample_trilinear3d
        upsample_trilinear3d_backward""",
    "losses are elementwise work and a reduction over the outputs": """
        binary_cross_entropy binary_cross_entropy_backward binary_cross_entropy_with_logits _ctc_loss
        _ctc_loss_backward _cudnn_ctc_loss huber_loss huber_loss_backward kl_div miopen_ctc_loss mse_loss
        mse_loss_backward multi_margin_loss multi_margin_loss_backward multilabel_margin_loss_backward
        multilabel_margin_loss_forward nll_loss2d_backward nll_loss2d_forward nll_loss_backward nll_loss_forward
        smooth_l1_loss smooth_l1_loss_backward soft_margin_loss soft_margin_loss_backward""",
    "random numbers and dropout are not arithmetic of the model": """
        bernoulli binomial cauchy _cudnn_init_dropout_state _dirichlet_grad dropout exponential feature_dropout
        _fill_mem_eff_dropout_mask_ _fused_dropout geometric log_normal _masked_scale multinomial native_dropout
        native_dropout_backward normal normal_functional _philox_key_fold_in _philox_key_split _philox_normal
        _philox_uniform poisson rand rand_like randint randint_like randn randn_like random randperm
        _sample_dirichlet _standard_gamma _standard_gamma_grad uniform prims::normal prims::uniform
        rngprims::philox_rand""",
    "creating and filling tensors": """
        arange bartlett_window blackman_window _efficientzerotensor empty empty_like empty_permuted
        empty_quantized empty_strided eye fft_fftfreq fft_rfftfreq fill full full_like hamming_window
        hann_window kaiser_window linspace logspace new_empty new_empty_strided new_full new_ones new_zeros
        _new_zeros_with_same_feature_meta ones ones_like range scalar_tensor sparse_compressed_tensor
        _sparse_compressed_tensor_with_dims sparse_coo_tensor _sparse_coo_tensor_with_dims
        _sparse_coo_tensor_with_dims_and_tensors sparse_resize sparse_resize_and_clear tril_indices triu_indices
        zero zeros zeros_like prims::empty prims::empty_permuted prims::empty_strided prims::fill prims::full
        prims::full_like prims::iota prims::scalar_tensor""",
    "the arithmetic of optimizers and of gradient scaling is elementwise in the parameters": """
        _amp_foreach_non_finite_check_and_unscale _amp_update_scale _fused_adagrad _fused_adam _fused_adamw
        _fused_sgd""",
    "communication between processes moves data and adds gradients": """
        c10d::_allgather_base_ c10d::_reduce_scatter_base_ c10d::allgather_ c10d::allgather_coalesced_
        c10d::allgather_into_tensor_coalesced_ c10d::allreduce_ c10d::allreduce_coalesced_ c10d::alltoall_
        c10d::alltoall_base_ c10d::barrier c10d::broadcast_ c10d::gather_ c10d::monitored_barrier_ c10d::recv_
        c10d::recv_any_source_ c10d::reduce_ c10d::reduce_scatter_ c10d::reduce_scatter_tensor_coalesced_
        c10d::scatter_ c10d::send _c10d_functional::all_gather_into_tensor _c10d_functional::all_reduce
        _c10d_functional::broadcast _c10d_functional::reduce_scatter_tensor _c10d_functional::wait_tensor""",
}  # fmt: skip
